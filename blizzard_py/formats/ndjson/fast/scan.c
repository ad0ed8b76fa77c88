/* Lines of JSON to columns in Arrow's layout, for the lines that are certain.
 *
 * CONTRACT
 *   The host writes the schema into `schema` (one `struct field` a column, names into `names`)
 *   and calls `configure` once. For each window of whole lines it writes the bytes to
 *   `input` and calls `scan`, which goes on from `from` until the window's end or until a
 *   buffer is full, and returns where it stopped. Then
 *     - `found.rows` rows stand in the columns; `rows_at` has the index of each row's line,
 *     - `found.left` lines are handed over, untouched: `left` has their indices and places,
 *     - `found.lines` lines were passed, which are rows, handed over or blank,
 *     - `unknown` has `found.unknown` names of these rows that the schema lacks, each once.
 *   Indices count from 0 at `from`. Nothing of a call outlives it.
 *
 *   A line becomes a row only if pyarrow.json and the conversions behind it (decode/) make the
 *   same row of it. Whatever this file does not know that for is handed over: it refuses
 *   nothing and reports no reason. The host checks that the whole window is UTF-8, or says
 *   `ascii`: then every line with another byte is handed over. Of a NESTED column it makes
 *   JSON text that is well-formed; whether that is of the column's type the host finds out.
 *
 *   Input is hostile. Every write is within a buffer whose size is fixed here; reads go at most
 *   PAD bytes beyond the window. There is no allocation, no call out, no recursion but that of
 *   `skipped`, which is bounded by DEPTH.
 *
 * HOW IT IS FAST
 *   Lines of one file look alike. The bytes between values (`,"user":"`) are learned as steps;
 *   the next line is compared with them, some sixteen bytes at a time, and only values are
 *   parsed. Where a line differs its keys are looked up (`looked_up`), and its form is learned.
 *
 * IN THIS FILE
 *   buffers · text · numbers · times · the other types · values of any kind · lines
 *   A parser takes the place where a value begins and returns the place behind it, or 0: not
 *   certain. `value` puts it into its column, at `row`; a row counts once its line is whole,
 *   so what a line left behind that was given up is written over by the next.
 */
#include <stdint.h>

typedef uint8_t u8;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int64_t i64;
typedef const u8 *at; /* a place in the input */
typedef u8 v16 __attribute__((vector_size(16)));
typedef u64 v2 __attribute__((vector_size(16)));

#define EXPORT __attribute__((visibility("default")))
#define COPY __builtin_memcpy
#define FILL __builtin_memset

#ifdef CHECKED /* in tests: every write is looked at */
#define CHECK(condition) do { if (!(condition)) __builtin_trap(); } while (0)
#else
#define CHECK(condition) do { } while (0)
#endif

/* --- buffers ------------------------------------------------------------------------------ */

enum {
    WINDOW = 4 << 20,   /* bytes of lines */
    PAD = 256,          /* readable behind them */
    CELLS = 24 << 20,   /* for values of fixed width and for validity */
    CHARS = 32 << 20,   /* for text, shared out among the columns that have some */
    ROWS = 1 << 18,
    LEFT = 1 << 14,
    FIELDS = 1024,
    NAMES = 1 << 16,
    DEPTH = 32,         /* of what is skipped */
    GAP = 112,          /* bytes between two values, learned */
    SLACK = 32,         /* text is written sixteen bytes at a time */
    FRESH = 512,        /* rows whose bits are made ready at once */
    UNKNOWNS = 64,      /* names that the schema lacks; of longer ones the beginning counts */
    LONG_NAME = 256,
};

enum kind { STRING, INT32, INT64, FLOAT32, FLOAT64, BOOLEAN, TIMESTAMP, EPOCH, DATE, DECIMAL,
            BINARY, COERCED, JSON, NESTED, KINDS };

static const u8 WIDTHS[KINDS] = {4, 4, 8, 4, 8, 0, 8, 8, 4, 16, 4, 4, 4, 4};

struct field {
    u32 kind, nullable, precision, scale; /* by the host, and the name's place in `names` */
    u32 name, name_length;
    u32 valid, data, chars, room; /* by `configure`: where in `cells` and `text`; `room` of text */
    u32 nulls;                    /* by `scan` */
};

struct left { u32 line, start, end; };
struct unknown { u32 start, length; };

EXPORT u8 input[WINDOW + PAD];
EXPORT u8 cells[CELLS];
EXPORT u8 text[CHARS];
EXPORT u8 names[NAMES];
EXPORT u32 rows_at[ROWS];
EXPORT struct left left[LEFT];
EXPORT struct unknown unknown[UNKNOWNS];
EXPORT struct field schema[FIELDS];
EXPORT struct { u32 rows, lines, left, capacity, unknown; } found;

static u32 fields, row;
static int skips;   /* whether a name that the schema lacks is passed over, or hands over */
static int full;    /* a value was given up for want of room */

/* --- text --------------------------------------------------------------------------------- */

static inline v16 loaded(at p) { v16 v; COPY(&v, p, 16); return v; }
static inline int any(v16 v) { v2 w = (v2)v; return (w[0] | w[1]) != 0; }
static inline u32 first(v16 v) /* index of the first byte that is not 0 */ {
    v2 w = (v2)v;
    return w[0] ? __builtin_ctzll(w[0]) >> 3 : 8 + (__builtin_ctzll(w[1]) >> 3);
}

static inline v16 special(v16 c) { return (v16)((c == '"') | (c == '\\') | (c < 0x20)); }
static inline int is_digit(u8 c) { return (u8)(c - '0') <= 9; }
static inline int is_blank(u8 c) { return c == ' ' || c == '\t' || c == '\r'; }

static at without_blanks(at p) { while (is_blank(*p)) p++; return p; }

static int hex4(at p, u32 *code) {
    u32 sum = 0;
    for (u32 i = 0; i < 4; i++) {
        u8 c = p[i], low = c | 0x20;
        if (is_digit(c)) sum = sum * 16 + (c - '0');
        else if (low >= 'a' && low <= 'f') sum = sum * 16 + (low - 'a' + 10);
        else return 0;
    }
    *code = sum;
    return 1;
}

/* What the escape at `p` says, as UTF-8 (at most 4 bytes). */
static at escape(at p, u8 **out) {
    u8 *o = *out;
    u32 code, low;
    switch (p[1]) {
    case '"': case '\\': case '/': *o = p[1]; break;
    case 'b': *o = '\b'; break;
    case 'f': *o = '\f'; break;
    case 'n': *o = '\n'; break;
    case 'r': *o = '\r'; break;
    case 't': *o = '\t'; break;
    case 'u':
        if (!hex4(p + 2, &code)) return 0;
        p += 6;
        if (code >= 0xD800 && code < 0xE000) {
            if (code >= 0xDC00 || p[0] != '\\' || p[1] != 'u' || !hex4(p + 2, &low)) return 0;
            if (low < 0xDC00 || low >= 0xE000) return 0;
            code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
            p += 6;
        }
        if (code < 0x80) *o++ = code;
        else if (code < 0x800) { *o++ = 0xC0 | code >> 6; *o++ = 0x80 | (code & 63); }
        else if (code < 0x10000) {
            *o++ = 0xE0 | code >> 12; *o++ = 0x80 | (code >> 6 & 63); *o++ = 0x80 | (code & 63);
        } else {
            *o++ = 0xF0 | code >> 18; *o++ = 0x80 | (code >> 12 & 63);
            *o++ = 0x80 | (code >> 6 & 63); *o++ = 0x80 | (code & 63);
        }
        *out = o;
        return p;
    default: return 0;
    }
    *out = o + 1;
    return p + 2;
}

/* The string whose content begins at `p`, copied to `*out`, which ends up behind it. */
static inline at string(at p, u8 **out, u8 *limit) {
    u8 *o = *out;
    for (;;) {
        if (o + SLACK > limit) { full = 1; return 0; }
        v16 c = loaded(p), mask = special(c);
        COPY(o, &c, 16);
        if (!any(mask)) { p += 16; o += 16; continue; }
        u32 n = first(mask);
        p += n; o += n;
        if (*p == '"') { *out = o; return p + 1; }
        if (*p != '\\' || !(p = escape(p, &o))) return 0;
    }
}

static at passed_string(at p) {
    u8 nowhere[4], *o;
    for (;;) {
        v16 mask = special(loaded(p));
        if (!any(mask)) { p += 16; continue; }
        p += first(mask);
        if (*p == '"') return p + 1;
        o = nowhere;
        if (*p != '\\' || !(p = escape(p, &o))) return 0;
    }
}

/* --- numbers ------------------------------------------------------------------------------ */

/* A number without an exponent: its digits as one integer (below 10^19), how many of them
 * are written before and behind the point. */
struct number { u64 digits; u32 whole, behind; int negative; };

static inline at number(at p, struct number *n) {
    u64 digits = 0;
    n->negative = *p == '-';
    p += n->negative;
    at begin = p;
    for (; is_digit(*p); p++) {
        if (digits >= 1000000000000000000) return 0;
        digits = digits * 10 + (*p - '0');
    }
    n->whole = p - begin;
    if (n->whole == 0 || (*begin == '0' && n->whole > 1)) return 0;
    n->behind = 0;
    if (*p == '.') {
        begin = ++p;
        for (; is_digit(*p); p++) {
            if (digits >= 1000000000000000000) return 0;
            digits = digits * 10 + (*p - '0');
        }
        n->behind = p - begin;
        if (n->behind == 0) return 0;
    }
    n->digits = digits;
    return p;
}

static inline at integer(at p, i64 *out) {
    int negative = *p == '-';
    p += negative;
    at begin = p;
    u64 sum = 0;
    while (is_digit(*p)) sum = sum * 10 + (*p++ - '0');
    u32 count = p - begin;
    if (count == 0 || count > 19 || sum > INT64_MAX || (*begin == '0' && count > 1)) return 0;
    *out = negative ? -(i64)sum : (i64)sum;
    return p;
}

static u64 power(u64 base, u32 exponent) {
    u64 product = 1;
    while (exponent--) product *= base;
    return product;
}

/* (high * 2^64 + low) / divisor, whose highest bit is set and which is above high; and whether
 * something is left. Two digits of 32 bits, as on paper: each is estimated by the upper half of
 * the divisor and corrected at most twice. */
static u64 divided(u64 high, u64 low, u64 divisor, int *left_over) {
    u64 upper = divisor >> 32, lower = (u32)divisor, quotient = 0, rest = high;
    for (int shift = 32; shift >= 0; shift -= 32) {
        u64 next = (u32)(low >> shift), digit = rest / upper, remainder = rest % upper;
        while (digit >> 32 || digit * lower > (remainder << 32 | next)) {
            digit--;
            remainder += upper;
            if (remainder >> 32) break;
        }
        rest = (rest << 32 | next) - digit * divisor; /* modulo 2^64, where it fits again */
        quotient = quotient << 32 | digit;
    }
    *left_over = rest != 0;
    return quotient;
}

static const double TENS[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11,
                              1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

/* The double next to the number, as IEEE rounds. */
static at real(at p, double *out) {
    struct number n;
    if (!(p = number(p, &n)) || n.behind > 27) return 0; /* 5^27 is the last below 2^63 */
    double found;
    if (n.digits == 0 || n.behind == 0)
        found = (double)n.digits;
    else if (n.digits <= 1ull << 53 && n.behind <= 22)
        found = (double)n.digits / TENS[n.behind]; /* both exact, so rounded once */
    else {
        /* digits / (5^k 2^k) with at least 62 bits of quotient: a lowest bit that says whether
         * anything follows is all that rounding to 53 needs. */
        u64 fives = power(5, n.behind);
        int up = __builtin_clzll(n.digits), scale = __builtin_clzll(fives), more;
        u64 numerator = n.digits << up;
        u64 quotient = divided(numerator >> 1, numerator << 63, fives << scale, &more);
        found = (double)(quotient | (u64)more);
        int exponent = scale - up - 63 - (int)n.behind;
        u64 bits = (u64)(1023 + exponent) << 52;
        double factor;
        COPY(&factor, &bits, 8);
        found *= factor;
    }
    *out = n.negative ? -found : found;
    return p;
}

/* A decimal as an integer, with `scale` digits behind the point and at most `precision`, which
 * is 38 at most, in all; also in quotes. */
static at scaled(at p, u32 precision, u32 scale, u64 out[2]) {
    struct number n;
    int quoted = *p == '"';
    if (!(p = number(p + quoted, &n)) || n.behind > scale || n.whole + scale > precision) return 0;
    if (quoted && *p++ != '"') return 0;
    u64 low = n.digits, high = 0;
    for (u32 i = n.behind; i < scale; i++) { /* times ten */
        u64 lower = (u32)low * 10ull, upper = (low >> 32) * 10 + (lower >> 32);
        high = high * 10 + (upper >> 32);
        low = upper << 32 | (u32)lower;
    }
    out[0] = n.negative ? -low : low;
    out[1] = n.negative ? ~high + (low == 0) : high;
    return p;
}

/* --- times -------------------------------------------------------------------------------- */

static inline u32 two(at p) /* 100 and more if these are no digits */ {
    u32 tens = (u8)(p[0] - '0'), ones = (u8)(p[1] - '0');
    return tens > 9 || ones > 9 ? 100 : tens * 10 + ones;
}

/* Days since 1970 of YYYY-MM-DD, in the years 1 to 9999. */
static at day(at p, i64 *out) {
    static const u8 LENGTHS[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    static const unsigned short BEFORE[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
    u32 century = two(p), years = two(p + 2), month = two(p + 5), of_month = two(p + 8);
    if (century > 99 || years > 99 || p[4] != '-' || p[7] != '-') return 0;
    u32 year = century * 100 + years;
    if (year == 0 || month - 1 > 11 || of_month == 0) return 0;
    int leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    if (of_month > LENGTHS[month - 1] + (u32)(leap && month == 2)) return 0;
    u32 past = year - 1;
    i64 days = past * 365 + past / 4 - past / 100 + past / 400;
    days += BEFORE[month - 1] + (leap && month > 2) + of_month - 1;
    *out = days - 719162;
    return p + 10;
}

/* Microseconds since 1970, UTC: a day alone, or with a time to the second or finer, without a
 * zone, with Z or with hours and minutes from UTC. */
static at timestamp(at p, i64 *out) {
    i64 days;
    if (*p++ != '"' || !(p = day(p, &days))) return 0;
    if (*p == '"') { *out = days * 86400000000; return p + 1; }
    if (*p != 'T' && *p != ' ') return 0;
    u32 hour = two(p + 1), minute = two(p + 4), second = two(p + 7);
    if (hour > 23 || minute > 59 || second > 59 || p[3] != ':' || p[6] != ':') return 0;
    p += 9;
    i64 micros = 0;
    if (*p == '.') {
        at begin = ++p;
        for (; is_digit(*p); p++) {
            if (p - begin == 6) return 0;
            micros = micros * 10 + (*p - '0');
        }
        if (p == begin) return 0;
        micros *= (i64)power(10, 6 - (u32)(p - begin));
    }
    i64 seconds = days * 86400 + hour * 3600 + minute * 60 + second;
    if (*p == 'Z') p++;
    else if (*p == '+' || *p == '-') {
        u32 hours = two(p + 1), minutes = two(p + 4);
        if (p[3] != ':' || hours > 14 || minutes > 59) return 0;
        i64 offset = hours * 3600 + minutes * 60;
        seconds += *p == '+' ? -offset : offset;
        p += 6;
    }
    if (*p != '"') return 0;
    *out = seconds * 1000000 + micros;
    return p + 1;
}

/* --- the other types ---------------------------------------------------------------------- */

static inline int sextet(u8 c) /* -1 for what is not of base64's alphabet */ {
    u8 low = c | 0x20;
    if (low >= 'a' && low <= 'z') return c >= 'a' ? c - 'a' + 26 : c - 'A';
    return is_digit(c) ? c - '0' + 52 : c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Base64 with its padding, and no bit set that belongs to no byte. */
static at base64(at p, u8 **out, u8 *limit) {
    if (*p++ != '"') return 0;
    u8 *o = *out;
    for (;; p += 4) {
        if (o + SLACK > limit) { full = 1; return 0; }
        if (*p == '"') { *out = o; return p + 1; }
        int a = sextet(p[0]);
        int b = a < 0 ? -1 : sextet(p[1]);
        if (b < 0) return 0;
        *o++ = (u8)(a << 2 | b >> 4);
        if (p[2] == '=') {
            if (p[3] != '=' || p[4] != '"' || (b & 15)) return 0;
            continue;
        }
        int c = sextet(p[2]);
        if (c < 0) return 0;
        *o++ = (u8)(b << 4 | c >> 2);
        if (p[3] == '=') {
            if (p[4] != '"' || (c & 3)) return 0;
            continue;
        }
        int d = sextet(p[3]);
        if (d < 0) return 0;
        *o++ = (u8)(c << 6 | d);
    }
}

static inline int is_null(at p) { return p[0] == 'n' && p[1] == 'u' && p[2] == 'l' && p[3] == 'l'; }

static at boolean(at p, u32 *out) {
    if (p[0] == 't' && p[1] == 'r' && p[2] == 'u' && p[3] == 'e') { *out = 1; return p + 4; }
    if (p[0] == 'f' && p[1] == 'a' && p[2] == 'l' && p[3] == 's' && p[4] == 'e') {
        *out = 0;
        return p + 5;
    }
    return 0;
}

/* Any value, whatever it is. */
static at skipped(at p, u32 depth) {
    struct number n;
    u32 ignored;
    u8 open = *p, close = open == '{' ? '}' : ']';
    switch (open) {
    case '"': return passed_string(p + 1);
    case 't': case 'f': return boolean(p, &ignored);
    case 'n': return is_null(p) ? p + 4 : 0;
    case '{': case '[': break;
    default: return number(p, &n);
    }
    if (depth == DEPTH) return 0;
    p = without_blanks(p + 1);
    if (*p == close) return p + 1;
    for (;;) {
        if (open == '{') {
            if (*p != '"' || !(p = passed_string(p + 1))) return 0;
            p = without_blanks(p);
            if (*p++ != ':') return 0;
            p = without_blanks(p);
        }
        if (!(p = skipped(p, depth + 1))) return 0;
        p = without_blanks(p);
        if (*p == close) return p + 1;
        if (*p++ != ',') return 0;
        p = without_blanks(p);
    }
}

/* A value as its JSON text; where that is to be `compact`, without space between its tokens. */
static at as_written(at p, u8 **out, u8 *limit, int compact) {
    at end = skipped(p, 0);
    u8 *o = *out;
    v16 space = {0};
    if (!end) return 0;
    if (o + (end - p) + SLACK > limit) { full = 1; return 0; }
    for (at q = p; compact && q < end; q += 16) { /* also in strings, or a little beyond */
        v16 c = loaded(q);
        space |= (v16)((c == ' ') | (c == '\t') | (c == '\r'));
    }
    if (any(space))
        for (int inside = 0; p < end; p++) {
            if (*p == '"') inside = !inside;
            if (inside && *p == '\\') *o++ = *p++;
            if (inside || !is_blank(*p)) *o++ = *p;
        }
    else {
        COPY(o, p, (u32)(end - p));
        o += end - p;
    }
    *out = o;
    return end;
}

/* --- values of any kind ------------------------------------------------------------------- */

static u32 nulled[FIELDS], nulled_count; /* the columns in which this line is null */

static inline __attribute__((always_inline)) at value(at p, u32 index) {
    struct field *f = &schema[index];
    u8 *data = cells + f->data;
    i64 whole;
    u64 wide[2];
    double fraction;
    u32 bit;
    if (is_null(p)) {
        if (!f->nullable || nulled_count == FIELDS) return 0;
        nulled[nulled_count++] = index;
        return p + 4;
    }
    switch (f->kind) {
    case INT64:
        if (!(p = integer(p, &whole))) return 0;
        break;
    case INT32:
        if (!(p = integer(p, &whole)) || whole != (int32_t)whole) return 0;
        ((int32_t *)data)[row] = (int32_t)whole;
        return p;
    case FLOAT64:
        if (!(p = real(p, &fraction))) return 0;
        ((double *)data)[row] = fraction;
        return p;
    case FLOAT32:
        if (!(p = real(p, &fraction))) return 0; /* 19 digits are never too large for it */
        ((float *)data)[row] = (float)fraction;
        return p;
    case BOOLEAN:
        if (!(p = boolean(p, &bit))) return 0;
        data[row >> 3] = (u8)((data[row >> 3] & ~(1 << (row & 7))) | bit << (row & 7));
        return p;
    case TIMESTAMP:
    case EPOCH:
        p = f->kind == EPOCH ? scaled(p, f->precision, f->scale, wide) : timestamp(p, &whole);
        if (!p) return 0;
        if (f->kind == EPOCH) whole = (i64)wide[0];
        if (whole < -62135596800000000 || whole > 253402300799999999) return 0;
        break;
    case DATE:
        if (*p != '"' || !(p = day(p + 1, &whole)) || *p++ != '"') return 0;
        ((int32_t *)data)[row] = (int32_t)whole;
        return p;
    case DECIMAL:
        if (!(p = scaled(p, f->precision, f->scale, wide))) return 0;
        COPY(data + 16 * row, wide, 16);
        return p;
    default: {
        u32 *offsets = (u32 *)data;
        u8 *start = text + f->chars, *o = start + offsets[row], *limit = start + f->room;
        CHECK(offsets[row] <= f->room);
        if (f->kind == BINARY) p = base64(p, &o, limit);
        else if (f->kind >= JSON || (f->kind == COERCED && *p != '"'))
            p = as_written(p, &o, limit, f->kind != NESTED);
        else p = *p == '"' ? string(p + 1, &o, limit) : 0;
        if (!p) return 0;
        CHECK(o <= limit);
        offsets[row + 1] = (u32)(o - start);
        return p;
    }
    }
    ((i64 *)data)[row] = whole;
    return p;
}

static void set_null(struct field *f) {
    u32 width = WIDTHS[f->kind];
    u8 *data = cells + f->data;
    f->nulls++;
    cells[f->valid + (row >> 3)] &= (u8)~(1 << (row & 7));
    if (f->kind == BOOLEAN) data[row >> 3] &= (u8)~(1 << (row & 7));
    else if (f->room) ((u32 *)data)[row + 1] = ((u32 *)data)[row];
    else FILL(data + row * width, 0, width);
}

/* --- lines -------------------------------------------------------------------------------- */

/* A step is a gap, the bytes before a value, and which column the value is of. */
enum { UNKNOWN = -1, END = -2 };
struct step { int column; u32 length, blocks; v16 last; u8 gap[GAP]; };
struct form {
    u32 steps, missing_count;
    int whole;            /* whether the last step is the line's end */
    u32 missing[FIELDS];  /* columns that have no value in such a line */
    struct step step[FIELDS];
};
static struct form forms[2];
static u32 current;       /* of the two: the one that is followed */

static u32 seen[FIELDS], stamp; /* in which line a column had a value last */

enum { SLOTS = 4 * FIELDS };
static u32 slots[SLOTS];  /* column + 1 by the hash of its name */

static u32 hash(at p, u32 length) {
    u32 sum = length;
    for (u32 i = 0; i < length; i++) sum = sum * 31 + p[i];
    return sum ^ sum >> 15;
}

static u32 hashed;        /* of the name that was looked up last */
static u32 hashes[UNKNOWNS];

static int column_of(at name, u32 length) {
    hashed = hash(name, length);
    for (u32 slot = hashed % SLOTS; slots[slot]; slot = (slot + 1) % SLOTS) {
        struct field *f = &schema[slots[slot] - 1];
        if (f->name_length != length) continue;
        u32 i = 0;
        while (i < length && names[f->name + i] == name[i]) i++;
        if (i == length) return (int)slots[slot] - 1;
    }
    return UNKNOWN;
}

/* Take down the name that was looked up last, unless it is there. */
static void note(at name, u32 length) {
    if (length > LONG_NAME) length = LONG_NAME;
    if (found.unknown == UNKNOWNS) return;
    for (u32 i = 0, same; i < found.unknown; i++) {
        at other = input + unknown[i].start;
        if (hashes[i] != hashed || unknown[i].length != length) continue;
        for (same = 0; same < length && other[same] == name[same];) same++;
        if (same == length) return;
    }
    hashes[found.unknown] = hashed;
    unknown[found.unknown++] = (struct unknown){(u32)(name - input), length};
}

static inline int matches(at p, const struct step *s) {
    const u8 *gap = s->gap;
    for (u32 i = 1; i < s->blocks; i++, p += 16, gap += 16)
        if (any(loaded(p) ^ loaded(gap))) return 0;
    return !any((loaded(p) ^ loaded(gap)) & s->last);
}

static void learn(struct form *form, at gap, at end, int column) {
    u32 length = (u32)(end - gap);
    if (form->steps == FIELDS || length > GAP) return;
    struct step *s = &form->step[form->steps++];
    s->column = column;
    s->length = length;
    s->blocks = (length + 15) / 16;
    u32 rest = length - 16 * (s->blocks - 1);
    for (u32 i = 0; i < 16; i++) s->last[i] = i < rest ? 0xFF : 0;
    FILL(s->gap, 0, GAP);
    COPY(s->gap, gap, length);
}

static inline at valued(at p, int column) { return column < 0 ? skipped(p, 0) : value(p, (u32)column); }

/* The rest of a line by its names, from the gap at `p` on, `done` steps of the form followed
 * so far; the line's form is learned. */
static at looked_up(at p, u32 done) {
    struct form *old = &forms[current], *new = &forms[1 - current];
    if (!++stamp) { FILL(seen, 0, sizeof seen); stamp = 1; }
    new->steps = done;
    for (u32 i = 0; i < done; i++) {
        new->step[i] = old->step[i];
        if (old->step[i].column >= 0) seen[old->step[i].column] = stamp;
    }
    for (u32 count = done;; count++) {
        at gap = p;
        int column = END;
        p = without_blanks(p);
        if (*p != (count ? ',' : '{') && !(count && *p == '}')) return 0;
        if (*p != '}') {
            p = without_blanks(p + 1);
            if (*p == '"') {
                at name = ++p;
                while (!any(special(loaded(p)))) p += 16;
                p += first(special(loaded(p)));
                if (*p != '"') return 0;
                column = column_of(name, (u32)(p - name));
                if (column == UNKNOWN && !skips) return 0;
                if (column == UNKNOWN) note(name, (u32)(p - name));
                p = without_blanks(p + 1);
                if (*p != ':') return 0;
                p = without_blanks(p + 1);
            } else if (count || *p != '}')
                return 0;
        }
        if (column == END) {
            p = without_blanks(p + 1);
            if (*p++ != '\n') return 0;
        } else if (column >= 0) {
            if (seen[column] == stamp) return 0;
            seen[column] = stamp;
        }
        if (new->steps == count) learn(new, gap, p, column);
        if (column == END) {
            new->whole = new->steps == count + 1;
            break;
        }
        if (!(p = valued(p, column))) return 0;
    }
    new->missing_count = 0;
    for (u32 i = 0; i < fields; i++)
        if (seen[i] != stamp) {
            if (!schema[i].nullable) return 0;
            new->missing[new->missing_count++] = i;
        }
    current = 1 - current;
    return p;
}

/* One line, by the form that is known as far as it goes. */
static at line(at p) {
    const struct form *form = &forms[current];
    nulled_count = 0;
    for (u32 i = 0; i < form->steps; i++) {
        const struct step *s = &form->step[i];
        if (!matches(p, s)) return looked_up(p, i);
        p += s->length;
        if (s->column == END) return p;
        if (!(p = valued(p, s->column))) return 0;
    }
    return looked_up(p, form->steps);
}

static at end_of_line(at p, at end) {
    while (p < end) {
        v16 mask = (v16)(loaded(p) == '\n');
        if (any(mask)) { p += first(mask) + 1; return p < end ? p : end; }
        p += 16;
    }
    return end;
}

static int beyond_ascii(at p, at end) {
    for (; p < end; p++)
        if (*p >= 0x80) return 1;
    return 0;
}

static void counted(u32 line_index) {
    const struct form *form = &forms[current];
    for (u32 i = 0; i < nulled_count; i++) set_null(&schema[nulled[i]]);
    for (u32 i = 0; i < form->missing_count; i++) set_null(&schema[form->missing[i]]);
    rows_at[row++] = line_index;
}

/* Bits of the next rows: valid, and false. */
static void freshen(void) {
    for (u32 i = 0; i < fields; i++) {
        FILL(cells + schema[i].valid + row / 8, 0xFF, FRESH / 8);
        if (schema[i].kind == BOOLEAN) FILL(cells + schema[i].data + row / 8, 0, FRESH / 8);
    }
}

EXPORT u32 scan(u32 from, u32 length, u32 ascii) {
    at p = input + from, end = input + length;
    u32 lines = 0, handed = 0, ready = 0, noted;
    if (length > WINDOW || from > length) return from;
    row = found.unknown = 0;
    forms[current].steps = 0; /* so that each name is looked up once in each call */
    for (u32 i = 0; i < fields; i++) schema[i].nulls = 0;
    while (p < end && row < found.capacity && handed < LEFT) {
        if (row == ready) { freshen(); ready += FRESH; }
        at start = without_blanks(p), next = 0;
        full = 0;
        noted = found.unknown;
        if (*start == '\n') {
            p = start + 1;
            lines++;
            continue;
        }
        if (!ascii || !beyond_ascii(p, end_of_line(p, end))) next = line(p);
        if (next) counted(lines);
        else {
            found.unknown = noted; /* of a line that is no row nothing is told */
            if (full && row) break; /* there is room for it in an empty buffer */
            next = end_of_line(p, end);
            left[handed++] = (struct left){lines, (u32)(p - input), (u32)(next - input)};
        }
        p = next;
        lines++;
    }
    found.rows = row;
    found.lines = lines;
    found.left = handed;
    return (u32)(p - input);
}

/* Share out the buffers for the first `count` fields of `schema`. False if there is no room. */
EXPORT u32 configure(u32 count, u32 pass_unknown) {
    u32 texts = 0, place = 0, chars = 0, bits = 0;
    u64 width = 0;
    if (count == 0 || count > FIELDS) return 0;
    for (u32 i = 0; i < count; i++) {
        if (schema[i].kind >= KINDS || schema[i].name + schema[i].name_length > NAMES) return 0;
        texts += schema[i].kind == STRING || schema[i].kind >= BINARY;
        bits += 1 + (schema[i].kind == BOOLEAN);
        width += WIDTHS[schema[i].kind];
    }
    /* Each buffer begins at a multiple of 64; offsets are one more than rows. */
    u64 rows = (u64)(CELLS - 192 * count) * 8 / (8 * width + bits) / FRESH * FRESH;
    found.capacity = rows > ROWS ? ROWS : (u32)rows;
    if (found.capacity == 0) return 0;
    u32 room = texts ? CHARS / texts / 64 * 64 : 0;
    if (room > WINDOW + 2 * SLACK) room = WINDOW + 2 * SLACK;
    FILL(slots, 0, sizeof slots);
    for (u32 i = 0; i < count; i++) {
        struct field *f = &schema[i];
        int is_text = f->kind == STRING || f->kind >= BINARY;
        f->valid = place;
        place += found.capacity / 8;
        f->data = place;
        place += f->kind == BOOLEAN ? found.capacity / 8 : found.capacity * WIDTHS[f->kind];
        place += is_text ? 64 : 0;
        f->chars = chars;
        f->room = is_text ? room : 0;
        chars += f->room;
        if (is_text) *(u32 *)(cells + f->data) = 0;
        u32 slot = hash(names + f->name, f->name_length) % SLOTS;
        while (slots[slot]) slot = (slot + 1) % SLOTS;
        slots[slot] = i + 1;
    }
    CHECK(place <= CELLS && chars <= CHARS);
    fields = count;
    skips = (int)pass_unknown;
    forms[0].steps = forms[1].steps = 0;
    forms[0].missing_count = forms[1].missing_count = 0;
    FILL(seen, 0, sizeof seen);
    stamp = 0;
    return 1;
}
