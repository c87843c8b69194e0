/* Parse JSON objects into the buffers of Arrow columns.

   A record is parsed only if the result is certainly that of Spark's `from_json` with the same schema.
   Any other record is left for Spark: malformed JSON, a value of another type, a repeated field, and
   whatever Jackson or Spark handle in a way of their own. */

#include "kernels.h"

enum { BOOL, INT8, INT16, INT32, INT64, FLOAT, DOUBLE, DECIMAL, TEXT, DATE, TIME };

typedef __INT16_TYPE__ i16;

/* Limits below those of Jackson. Spark parses longer records. */
enum { RECORD_MAX = 1 << 20, NAME_MAX = 1 << 10, NUMBER_MAX = 64, DEPTH_MAX = 64 };

struct json_column {
  const u8 *name;
  i64 name_length;
  i64 kind;
  i64 is_required; /* a record without the value is left for Spark */
  i64 precision;   /* of a decimal */
  i64 scale;
  u8 *values; /* all but texts; of booleans, a bit each */
  i32 *offsets;
  u8 *data;
  i64 capacity; /* of `data` */
  i64 used;
  u8 *valid;
  i64 nulls;
  /* Of the row that is being parsed: */
  i64 is_found;
  i64 is_set;
};

struct json_reader {
  struct source texts;
  struct json_column *columns;
  i64 column_count;
  /* The upper 128 bits of powers of ten, the low half first, each rounded down. */
  const u64 *powers;
  i64 first_power;
  i64 power_count;
  u8 *is_left; /* results: a bit for each record that is left for Spark, and how many there are */
  i64 left;
};

struct text {
  const u8 *at;
  const u8 *end;
};

/* Functions that read return 0 for input that is left for Spark. */

static inline int is_space(u8 c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

static inline void skip_space(struct text *t) {
  while (t->at < t->end && is_space(*t->at)) t->at++;
}

static inline int accept(struct text *t, u8 c) {
  if (t->at >= t->end || *t->at != c) return 0;
  t->at++;
  return 1;
}

static inline int is_digit(u8 c) { return (u8)(c - '0') < 10; }

static int accept_word(struct text *t, const char *word) {
  for (; *word; word++)
    if (!accept(t, (u8)*word)) return 0;
  return 1;
}

/* ---- strings ------------------------------------------------------------------------------- */

static inline int is_tail(u8 c) { return (c & 0xc0) == 0x80; }

/* Return the length of the UTF-8 sequence at `at`, which is not ASCII; 0 if it is invalid. */
static i64 sequence(const u8 *at, const u8 *end) {
  i64 left = end - at;
  u8 c = at[0];
  if (c < 0xc2 || left < 2 || !is_tail(at[1])) return 0;
  if (c < 0xe0) return 2;
  if (left < 3 || !is_tail(at[2])) return 0;
  if (c < 0xf0) {
    if (c == 0xe0 && at[1] < 0xa0) return 0; /* could be shorter */
    if (c == 0xed && at[1] > 0x9f) return 0; /* a surrogate */
    return 3;
  }
  if (c > 0xf4 || left < 4 || !is_tail(at[3])) return 0;
  if (c == 0xf0 && at[1] < 0x90) return 0;
  if (c == 0xf4 && at[1] > 0x8f) return 0; /* above U+10FFFF */
  return 4;
}

static inline u64 zero_bytes(u64 word) {
  const u64 ones = 0x0101010101010101, tops = 0x8080808080808080;
  return (word - ones) & ~word & tops;
}

/* Return whether one of 8 bytes ends a run of plain characters: quote, backslash, control, not ASCII. */
static inline u64 is_special(u64 word) {
  const u64 ones = 0x0101010101010101, tops = 0x8080808080808080;
  return zero_bytes(word ^ ones * '"') | zero_bytes(word ^ ones * '\\') |
         ((word - ones * 0x20) & ~word & tops) | (word & tops);
}

/* Read a string after its opening quote, and set `out` to its characters. */
static int read_string(struct text *t, struct field *out, int *has_escapes) {
  const u8 *at = t->at, *end = t->end;
  *has_escapes = 0;
  for (;;) {
    while (end - at >= 8) {
      u64 word;
      copy(&word, at, 8);
      if (is_special(word)) break;
      at += 8;
    }
    if (at >= end) return 0;
    u8 c = *at;
    if (c == '"') break;
    if (c < 0x20) return 0;
    if (c == '\\') {
      *has_escapes = 1;
      if (end - at < 2) return 0;
      at += 2; /* `unescape` checks the escape itself */
    } else if (c < 0x80) {
      at++;
    } else {
      i64 size = sequence(at, end);
      if (!size) return 0;
      at += size;
    }
  }
  out->data = t->at;
  out->length = at - t->at;
  t->at = at + 1;
  return 1;
}

static int hex4(const u8 *at, const u8 *end, u32 *out) {
  if (end - at < 4) return 0;
  u32 value = 0;
  for (int i = 0; i < 4; i++) {
    u8 c = at[i], lower = c | 0x20;
    if (is_digit(c)) value = value << 4 | (u32)(c - '0');
    else if (lower >= 'a' && lower <= 'f') value = value << 4 | (u32)(lower - 'a' + 10);
    else return 0;
  }
  *out = value;
  return 1;
}

static u8 *put_utf8(u8 *out, u32 c) {
  if (c < 0x80) {
    *out++ = (u8)c;
  } else if (c < 0x800) {
    *out++ = (u8)(0xc0 | c >> 6);
    *out++ = (u8)(0x80 | (c & 0x3f));
  } else if (c < 0x10000) {
    *out++ = (u8)(0xe0 | c >> 12);
    *out++ = (u8)(0x80 | (c >> 6 & 0x3f));
    *out++ = (u8)(0x80 | (c & 0x3f));
  } else {
    *out++ = (u8)(0xf0 | c >> 18);
    *out++ = (u8)(0x80 | (c >> 12 & 0x3f));
    *out++ = (u8)(0x80 | (c >> 6 & 0x3f));
    *out++ = (u8)(0x80 | (c & 0x3f));
  }
  return out;
}

/* Return the code point of an escape after its backslash, and move `at` beyond it. Return -1 for an
   escape that is left for Spark. */
static i64 read_escape(const u8 **at, const u8 *end) {
  u32 c, low;
  u8 letter = *(*at)++; /* `read_string` found it */
  switch (letter) {
    case '"': case '\\': case '/': return letter;
    case 'b': return '\b';
    case 'f': return '\f';
    case 'n': return '\n';
    case 'r': return '\r';
    case 't': return '\t';
    case 'u': break;
    default: return -1;
  }
  if (!hex4(*at, end, &c)) return -1;
  *at += 4;
  if (c < 0xd800 || c > 0xdfff) return c;
  /* Java replaces a surrogate that is not one of a pair. */
  if (c > 0xdbff || end - *at < 6 || (*at)[0] != '\\' || (*at)[1] != 'u') return -1;
  if (!hex4(*at + 2, end, &low) || low < 0xdc00 || low > 0xdfff) return -1;
  *at += 6;
  return 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
}

/* Copy a string's characters without their escapes, and return the end of the copy, or null. The copy
   is never longer than the string. */
static u8 *unescape(struct field f, u8 *out) {
  const u8 *at = f.data, *end = f.data + f.length;
  while (at < end) {
    if (*at != '\\') {
      *out++ = *at++;
      continue;
    }
    at++;
    i64 c = read_escape(&at, end);
    if (c < 0) return 0;
    out = put_utf8(out, (u32)c);
  }
  return out;
}

static int has_valid_escapes(struct field f) {
  const u8 *at = f.data, *end = f.data + f.length;
  while (at < end)
    if (*at++ == '\\' && read_escape(&at, end) < 0) return 0;
  return 1;
}

/* ---- numbers ------------------------------------------------------------------------------- */

struct number {
  u64 digits; /* without sign, point and exponent */
  i64 count;  /* of digits after leading zeros */
  i64 fraction;
  i64 exponent;
  int is_negative, is_integer, has_exponent;
};

static int read_number(struct text *t, struct number *n) {
  const u8 *start = t->at;
  *n = (struct number){0};
  n->is_integer = 1;
  n->is_negative = accept(t, '-');
  if (t->at >= t->end || !is_digit(*t->at)) return 0;
  const u8 *first = t->at;
  int is_after_point = 0;
  for (;; t->at++) {
    if (t->at < t->end && is_digit(*t->at)) {
      if (n->count || *t->at != '0') {
        if (++n->count > 19) return 0; /* more than 64 bits */
        n->digits = n->digits * 10 + (u64)(*t->at - '0');
      }
      n->fraction += is_after_point;
    } else if (t->at < t->end && *t->at == '.' && !is_after_point) {
      is_after_point = 1;
    } else {
      break;
    }
    if (t->at - start > NUMBER_MAX) return 0;
  }
  if (*first == '0' && t->at - first > 1 && first[1] != '.') return 0; /* a leading zero */
  n->is_integer = !is_after_point;
  if (is_after_point && !n->fraction) return 0;
  if (t->at < t->end && (*t->at | 0x20) == 'e') {
    t->at++;
    n->is_integer = 0;
    n->has_exponent = 1;
    int is_negative = accept(t, '-');
    if (!is_negative) accept(t, '+');
    const u8 *digits = t->at;
    for (; t->at < t->end && is_digit(*t->at); t->at++) {
      if (t->at - digits > 4) return 0;
      n->exponent = n->exponent * 10 + (*t->at - '0');
    }
    if (t->at == digits) return 0;
    if (is_negative) n->exponent = -n->exponent;
  }
  /* What Java makes of -0 depends on the type. */
  return !(n->is_negative && n->is_integer && !n->digits);
}

static inline void multiply(u64 a, u64 b, u64 *high, u64 *low) {
  unsigned __int128 product = (unsigned __int128)a * b;
  *high = (u64)(product >> 64);
  *low = (u64)product;
}

/* Convert `digits * 10^exponent` to the nearest double if both are exact doubles: one operation rounds
   only once. */
static int nearest_of_exact(u64 digits, i64 exponent, double *out) {
  static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                  1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                  1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
  if (digits >> 53 || exponent < -22 || exponent > 22) return 0;
  *out = exponent < 0 ? (double)digits / powers[-exponent] : (double)digits * powers[exponent];
  return 1;
}

/* Convert `digits * 10^exponent` to the nearest double, by the algorithm of Eisel and Lemire. */
static int nearest(const struct json_reader *r, u64 digits, i64 exponent, double *out) {
  i64 power = exponent - r->first_power;
  if (power < 0 || power >= r->power_count) return 0;
  u64 low_power = r->powers[2 * power], high_power = r->powers[2 * power + 1];
  int zeros = __builtin_clzll(digits);
  digits <<= zeros;
  i64 binary = ((217706 * exponent) >> 16) + 64 + 1023 - zeros;
  u64 high, low;
  multiply(digits, high_power, &high, &low);
  if ((high & 0x1ff) == 0x1ff && low + digits < digits) {
    u64 more_high, more_low;
    multiply(digits, low_power, &more_high, &more_low);
    u64 merged = low + more_high;
    if (merged < low) high++;
    if ((high & 0x1ff) == 0x1ff && merged + 1 == 0 && more_low + digits < digits) return 0;
    low = merged;
  }
  u64 top = high >> 63, mantissa = high >> (top + 9);
  binary -= (i64)(1 ^ top);
  if (low == 0 && (high & 0x1ff) == 0 && (mantissa & 3) == 1) return 0; /* half way between two */
  mantissa = (mantissa + (mantissa & 1)) >> 1;
  if (mantissa >> 53) {
    mantissa >>= 1;
    binary++;
  }
  if (binary < 1 || binary > 2046) return 0; /* subnormal or infinite */
  u64 bits = (u64)binary << 52 | (mantissa & 0xfffffffffffff);
  copy(out, &bits, 8);
  return 1;
}

static int to_double(const struct json_reader *r, const struct number *n, double *out) {
  if (n->is_integer) {
    if (n->count > 18) return 0;
    *out = (double)(i64)n->digits;
  } else if (!n->digits) {
    *out = 0;
  } else {
    i64 exponent = n->exponent - n->fraction;
    if (!nearest_of_exact(n->digits, exponent, out) && !nearest(r, n->digits, exponent, out)) return 0;
  }
  if (n->is_negative) *out = -*out;
  return 1;
}

static int to_float(double found, float *out) {
  u64 bits;
  copy(&bits, &found, 8);
  i64 exponent = (i64)(bits >> 52 & 0x7ff) - 1023;
  if (found != 0 && (exponent < -126 || exponent > 126)) return 0;
  if ((bits & 0x1fffffff) == 0x10000000) return 0; /* half way: the text decides */
  *out = (float)found;
  return 1;
}

static int to_integer(const struct number *n, i64 most, i64 *out) {
  if (!n->is_integer || n->digits > (u64)most + (u64)n->is_negative) return 0;
  *out = n->is_negative ? (i64)(0 - n->digits) : (i64)n->digits;
  return 1;
}

static int put_decimal(const struct json_column *c, const struct number *n, u8 *out) {
  i64 zeros = c->scale - n->fraction, whole = n->count - n->fraction;
  if (n->has_exponent || n->count > 18 || zeros < 0 || whole > c->precision - c->scale) return 0;
  unsigned __int128 value = n->digits;
  for (; zeros > 0; zeros--) value *= 10;
  if (n->is_negative) value = 0 - value;
  copy(out, &value, 16);
  return 1;
}

/* ---- times --------------------------------------------------------------------------------- */

static int read_digits(struct text *t, int count, i64 *out) {
  i64 value = 0;
  for (; count; count--, t->at++) {
    if (t->at >= t->end || !is_digit(*t->at)) return 0;
    value = value * 10 + (*t->at - '0');
  }
  *out = value;
  return 1;
}

/* Read a date such as 2026-01-31, as days since 1970. */
static int read_date(struct text *t, i64 *out) {
  static const u8 lengths[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  i64 year, month, day;
  if (!read_digits(t, 4, &year) || !accept(t, '-')) return 0;
  if (!read_digits(t, 2, &month) || !accept(t, '-') || !read_digits(t, 2, &day)) return 0;
  if (year < 1 || month < 1 || month > 12 || day < 1) return 0;
  int is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
  if (day > lengths[month - 1] + (month == 2 && is_leap)) return 0;
  /* Years that begin with March, so that the leap day is the last of its year. */
  i64 from = year - (month <= 2), of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
  *out = from * 365 + from / 4 - from / 100 + from / 400 + of_year - 719468;
  return 1;
}

/* Read a time such as 2026-01-31T23:59:59.123456Z, as microseconds since 1970. */
static int read_time(struct text *t, i64 *out) {
  i64 days, hour, minute, second, micros = 0, offset = 0;
  if (!read_date(t, &days) || !(accept(t, 'T') || accept(t, ' '))) return 0;
  if (!read_digits(t, 2, &hour) || !accept(t, ':') || !read_digits(t, 2, &minute)) return 0;
  if (!accept(t, ':') || !read_digits(t, 2, &second)) return 0;
  if (hour > 23 || minute > 59 || second > 59) return 0;
  if (accept(t, '.')) {
    int digits = 0;
    for (; t->at < t->end && is_digit(*t->at); t->at++, digits++) {
      if (digits == 6) return 0;
      micros = micros * 10 + (*t->at - '0');
    }
    if (!digits) return 0;
    for (; digits < 6; digits++) micros *= 10;
  }
  if (t->at < t->end && (*t->at == '+' || *t->at == '-')) {
    int is_behind = *t->at++ == '-';
    i64 hours, minutes;
    if (!read_digits(t, 2, &hours) || !accept(t, ':') || !read_digits(t, 2, &minutes)) return 0;
    if (hours > 17 || minutes > 59) return 0;
    offset = (hours * 60 + minutes) * (is_behind ? -60 : 60);
  } else {
    accept(t, 'Z');
  }
  *out = (days * 86400 + hour * 3600 + minute * 60 + second - offset) * 1000000 + micros;
  return 1;
}

/* ---- values -------------------------------------------------------------------------------- */

/* Read a value that no column needs. */
static int skip_value(struct text *t) {
  u64 is_object = 0; /* a bit for each open object or array, the innermost lowest */
  int depth = 0, has_escapes;
  struct field text;
  struct number number;
  for (;;) {
    skip_space(t);
    if (t->at >= t->end) return 0;
    u8 c = *t->at;
    int is_opened = c == '{' || c == '[';
    if (is_opened) {
      if (++depth >= DEPTH_MAX) return 0;
      is_object = is_object << 1 | (c == '{');
      t->at++;
      skip_space(t);
      if (accept(t, c == '{' ? '}' : ']')) {
        is_opened = 0;
        depth--;
        is_object >>= 1;
      }
    } else if (c == '"') {
      t->at++;
      if (!read_string(t, &text, &has_escapes) || (has_escapes && !has_valid_escapes(text))) return 0;
    } else if (c == 't' ? !accept_word(t, "true")
               : c == 'f' ? !accept_word(t, "false")
               : c == 'n' ? !accept_word(t, "null")
                          : !read_number(t, &number)) {
      return 0;
    }
    while (!is_opened) { /* after a value: it may have been the last one of its parent */
      if (!depth) return 1;
      skip_space(t);
      if (accept(t, ',')) break;
      if (!accept(t, is_object & 1 ? '}' : ']')) return 0;
      depth--;
      is_object >>= 1;
    }
    if (is_object & 1) {
      skip_space(t);
      if (!accept(t, '"') || !read_string(t, &text, &has_escapes) || has_escapes) return 0;
      if (text.length > NAME_MAX) return 0;
      skip_space(t);
      if (!accept(t, ':')) return 0;
    }
  }
}

static int put_text(struct json_column *c, struct field text, int has_escapes) {
  if (text.length > c->capacity - c->used) return 0;
  u8 *end = has_escapes ? unescape(text, c->data + c->used) : put(c->data + c->used, text);
  if (!end) return 0;
  c->used = end - c->data;
  return 1;
}

static int parse_string(struct json_column *c, i64 row, struct field text, int has_escapes) {
  if (c->kind == TEXT) return put_text(c, text, has_escapes);
  if (has_escapes) return 0;
  struct text t = {text.data, text.data + text.length};
  i64 found;
  if (c->kind == DATE) {
    if (!read_date(&t, &found) || t.at != t.end) return 0;
    i32 days = (i32)found;
    copy(c->values + row * 4, &days, 4);
  } else {
    if (c->kind != TIME || !read_time(&t, &found) || t.at != t.end) return 0;
    copy(c->values + row * 8, &found, 8);
  }
  return 1;
}

static int parse_number(const struct json_reader *r, struct json_column *c, i64 row, struct text *t) {
  struct number n;
  i64 whole;
  i32 narrow32;
  i16 narrow16;
  double found;
  float narrow;
  if (!read_number(t, &n)) return 0;
  switch (c->kind) {
    case INT8:
      if (!to_integer(&n, 0x7f, &whole)) return 0;
      c->values[row] = (u8)whole;
      return 1;
    case INT16:
      if (!to_integer(&n, 0x7fff, &whole)) return 0;
      narrow16 = (i16)whole;
      copy(c->values + row * 2, &narrow16, 2);
      return 1;
    case INT32:
      if (!to_integer(&n, I32_MAX, &whole)) return 0;
      narrow32 = (i32)whole;
      copy(c->values + row * 4, &narrow32, 4);
      return 1;
    case INT64:
      if (!to_integer(&n, __INT64_MAX__, &whole)) return 0;
      copy(c->values + row * 8, &whole, 8);
      return 1;
    case TIME: /* in seconds */
      if (!to_integer(&n, __INT64_MAX__ / 1000000, &whole)) return 0;
      whole *= 1000000;
      copy(c->values + row * 8, &whole, 8);
      return 1;
    case DOUBLE:
      if (!to_double(r, &n, &found)) return 0;
      copy(c->values + row * 8, &found, 8);
      return 1;
    case FLOAT:
      if (!to_double(r, &n, &found) || !to_float(found, &narrow)) return 0;
      copy(c->values + row * 4, &narrow, 4);
      return 1;
    case DECIMAL: return put_decimal(c, &n, c->values + row * 16);
    default: return 0;
  }
}

static int parse_value(const struct json_reader *r, struct json_column *c, i64 row, struct text *t) {
  skip_space(t);
  if (t->at >= t->end) return 0;
  c->is_found = 1;
  struct field text;
  int has_escapes;
  switch (*t->at) {
    case 'n': return accept_word(t, "null");
    case 't':
    case 'f': {
      int is_true = *t->at == 't';
      if (c->kind != BOOL || !accept_word(t, is_true ? "true" : "false")) return 0;
      c->is_set = 1;
      c->values[row >> 3] |= (u8)(is_true << (row & 7));
      return 1;
    }
    case '"':
      t->at++;
      if (!read_string(t, &text, &has_escapes)) return 0;
      c->is_set = 1;
      return parse_string(c, row, text, has_escapes);
    default: c->is_set = 1; return parse_number(r, c, row, t);
  }
}

static inline int is_name(const struct json_column *c, struct field name) {
  if (c->name_length != name.length) return 0;
  for (i64 i = 0; i < name.length; i++)
    if (c->name[i] != name.data[i]) return 0;
  return 1;
}

/* Most records have their fields in the order of the last record. So `next`, the column after the last
   found one, is tried first. */
static struct json_column *column_of(const struct json_reader *r, struct field name, i64 *next) {
  for (i64 i = 0, at = *next; i < r->column_count; i++, at++) {
    if (at >= r->column_count) at = 0;
    if (is_name(r->columns + at, name)) {
      *next = at + 1;
      return r->columns + at;
    }
  }
  return 0;
}

static int parse_object(const struct json_reader *r, i64 row, struct text *t) {
  i64 next = 0;
  skip_space(t);
  if (!accept(t, '{')) return 0;
  skip_space(t);
  int is_open = !accept(t, '}');
  while (is_open) {
    struct field name;
    int has_escapes;
    skip_space(t);
    if (!accept(t, '"') || !read_string(t, &name, &has_escapes) || has_escapes) return 0;
    if (name.length > NAME_MAX) return 0;
    skip_space(t);
    if (!accept(t, ':')) return 0;
    struct json_column *c = column_of(r, name, &next);
    if (c && c->is_found) return 0; /* a repeated field */
    if (c ? !parse_value(r, c, row, t) : !skip_value(t)) return 0;
    skip_space(t);
    is_open = accept(t, ',');
    if (!is_open && !accept(t, '}')) return 0;
  }
  skip_space(t);
  if (t->at != t->end) return 0;
  for (i64 i = 0; i < r->column_count; i++)
    if (r->columns[i].is_required && !r->columns[i].is_set) return 0;
  return 1;
}

static const u8 sizes[] = {0, 1, 2, 4, 8, 4, 8, 16, 0, 4, 8}; /* in bytes, by kind */

/* Complete the row in a column, as a null if the record is not parsed. */
static void end_row(struct json_column *c, i64 row, int is_parsed) {
  int is_set = is_parsed && c->is_set;
  put_bit(c->valid, row, is_set);
  c->nulls += !is_set;
  if (c->kind == TEXT) {
    if (!is_set) c->used = c->offsets[row];
    c->offsets[row + 1] = (i32)c->used;
  } else if (!is_set && c->kind != BOOL) {
    fill(c->values + row * sizes[c->kind], 0, sizes[c->kind]);
  }
}

/* Parse all records. Return INVALID if the column of records or a kind is. Each column has room for all
   rows; a text that does not fit into its column is left for Spark. */
EXPORT i64 eos_json(struct json_reader *r) {
  r->left = 0;
  for (i64 i = 0; i < r->column_count; i++) {
    struct json_column *c = r->columns + i;
    if (c->kind < BOOL || c->kind > TIME || c->capacity > I32_MAX) return INVALID;
    c->used = c->nulls = 0;
    if (c->kind == TEXT) c->offsets[0] = 0;
  }
  for (i64 row = 0; row < r->texts.rows; row++) {
    struct field f;
    TRY(get(&r->texts, row, &f));
    for (i64 i = 0; i < r->column_count; i++) {
      struct json_column *c = r->columns + i;
      c->is_found = c->is_set = 0;
      if (c->kind == BOOL) put_bit(c->values, row, 0);
    }
    struct text t = {f.data, f.data + (f.length > 0 ? f.length : 0)};
    int is_parsed = f.length >= 0 && f.length <= RECORD_MAX && parse_object(r, row, &t);
    int is_left = !is_parsed && f.length >= 0;
    put_bit(r->is_left, row, is_left);
    r->left += is_left;
    for (i64 i = 0; i < r->column_count; i++) end_row(r->columns + i, row, is_parsed);
  }
  return 0;
}
