"""Which API call got less precise, where, and by how much more than it may?"""
