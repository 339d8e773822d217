"""--probe-fuzz: drawn calls of an API, the search for its largest errors, and small calls that show them."""
