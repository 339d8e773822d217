"""The search around records: drawn calls are judged as recorded ones are, and what fails is shrunk.

In: templates of an API's calls, and a checker. Out: findings. Only `search` imports hypothesis.
"""
