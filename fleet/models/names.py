"""What may be a name: the characters that survive a URL, a label and a log line unescaped."""

from django.core.validators import RegexValidator

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._:/@+-]*\Z"
SLUG_PATTERN = r"^[a-z0-9][a-z0-9_-]*\Z"

valid_name = RegexValidator(
    NAME_PATTERN, "Use letters, digits and . _ : / @ + - (a letter or digit first)."
)
valid_slug = RegexValidator(SLUG_PATTERN, "Use lower-case letters, digits, - and _.")
