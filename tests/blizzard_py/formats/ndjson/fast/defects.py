"""Possible defects of `scan.c`: each is a change of its text that the fuzz test must find."""

from __future__ import annotations

DEFECTS: dict[str, tuple[str, str]] = {
    "an escape is taken for its letter": (r"case 'n': *o = '\n'", "case 'n': *o = 'n'"),
    "surrogate pairs make another character": ("(code - 0xD800) << 10", "(code - 0xD800) << 9"),
    "a lone low surrogate is a character": ("code >= 0xDC00 || p[0]", "p[0]"),
    "a control character is text": ("(c < 0x20))", "(c < 0x1F))"),
    "an integer may begin with zeros": (" || (*begin == '0' && count > 1)", ""),
    "a number may begin with zeros": (" || (*begin == '0' && n->whole > 1)", ""),
    "an integer wraps around": (" || sum > INT64_MAX", ""),
    "an int32 is cut off": (" || whole != (int32_t)whole", ""),
    "a point may be the last of a number": ("if (n->behind == 0) return 0;", ""),
    "what a division leaves does not round": ("quotient | (u64)more", "quotient"),
    "a division rounds twice": ("n.digits <= 1ull << 53", "n.digits <= 1ull << 56"),
    "minus zero is zero": ("n.negative ? -found : found", "n.negative ? 0 - found : found"),
    "a decimal has more digits than its type": (
        "whole + scale > precision",
        "whole + scale > precision + 2",
    ),
    "a quotation mark may be missing": (
        "if (quoted && *p++ != '\"') return 0;",
        "p += quoted && *p == '\"';",
    ),
    "negative decimals lose their sign above": ("~high + (low == 0)", "~high"),
    "centuries are leap years": (" && (year % 100 != 0 || year % 400 == 0)", ""),
    "there is a year 0": ("if (year == 0 || month", "if (month"),
    "a day has 24:00": ("hour > 23", "hour > 24"),
    "zones are subtracted": ("*p == '+' ? -offset", "*p == '-' ? -offset"),
    "fractions of a second are microseconds": (
        "micros *= (i64)power(10, 6 - (u32)(p - begin));",
        "",
    ),
    "a time may lie outside of the calendar": (
        "if (whole < -62135596800000000 || whole > 253402300799999999) return 0;",
        "",
    ),
    "base64 has bits to spare": (" || (c & 3)", ""),
    "JSON text keeps its space": ("if (inside || !is_blank(*p)) *o++", "*o++"),
    "JSON text loses space in its strings": ("if (inside || !is_blank", "if (!is_blank"),
    "an escaped quotation mark ends JSON's string": (
        "if (inside && *p == '\\\\') *o++ = *p++;",
        "",
    ),
    "JSON text keeps its tabs": ("(c == ' ') | (c == '\\t') |", "(c == ' ') |"),
    "a form feed is space": ("c == ' ' || c == '\\t'", "c == ' ' || c == '\\f' || c == '\\t'"),
    "a required column may be null": ("if (!f->nullable || nulled", "if (nulled"),
    "a required column may be missing": ("if (!schema[i].nullable) return 0;", ""),
    "a field may come twice": ("if (seen[column] == stamp) return 0;", ""),
    "what was followed counts as missing": (
        "if (old->step[i].column >= 0) seen[old->step[i].column] = stamp;",
        "",
    ),
    "an unknown field is never told": ("if (column == UNKNOWN && !skips) return 0;", ""),
    "a line that is no row tells its names": ("found.unknown = noted; /*", "(void)noted; /*"),
    "gaps are compared by their beginning": ("& s->last);", "& s->last & (v16){255});"),
    "what is missing stays as it was": (
        "for (u32 i = 0; i < form->missing_count; i++) set_null",
        "for (u32 i = 1; i < form->missing_count; i++) set_null",
    ),
    "a boolean stays true": ("& ~(1 << (row & 7))) |", "| 0) |"),
    "anything may stand behind the object": (
        "if (*p++ != '\\n') return 0;",
        "while (*p++ != '\\n') ;",
    ),
    "a blank line is none": ("p = start + 1;\n            lines++;", "p = start + 1;"),
    "a line that is not UTF-8 is one": ("if (!ascii || !beyond", "if (ascii < 2 || !beyond"),
    "lines are numbered by rows": (
        "rows_at[row++] = line_index;",
        "rows_at[row] = line_index < row ? 0 : row; row++;",
    ),
    "a line that is handed over keeps its place": ("p = next;\n        lines++;", "p = next;"),
}  # fmt: skip
