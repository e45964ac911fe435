"""The shapes of what the API answers: type checkers hold the code to them, and the API's document shows them."""
