"""Templates of C code."""


def render_string(string, sub):
    """Return ``string % sub``; the error tells where in the string it arose."""
    try:
        return string % sub
    except Exception as error:
        for end in range(len(string) + 1):
            try:
                string[:end] % sub
            except Exception as shorter:
                if str(shorter) == str(error):
                    text = f"{string[:end]}<<<< caused exception {shorter}"
                    raise Exception(text) from error
        raise


def strip_leading_white_space(line):
    """Return a line without the spaces and tabs it begins with."""
    return line.lstrip(" \t")


def pretty_format(string):
    """Return C code indented by its braces."""
    lines, depth = [], 0
    for line in map(strip_leading_white_space, string.split("\n")):
        depth = max(depth - line.count("}"), 0)
        lines.append("    " * depth + line)
        depth += line.count("{")
    return "\n".join(lines)
