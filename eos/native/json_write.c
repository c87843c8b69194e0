/* Write the rows of Arrow columns as JSON objects, with the bytes that Spark's `to_json` writes. */

#include "kernels.h"

/* Kinds of columns. */
enum { AS_BITS, AS_8, AS_16, AS_32, AS_64, AS_DECIMALS, AS_TEXTS };
enum { NUMBER_BYTES_MAX = 32, DECIMAL_DIGITS_MAX = 330 };

typedef __INT8_TYPE__ i8;
typedef __INT16_TYPE__ i16;

struct written_column {
  const u8 *name; /* with what is before and after it: `,"name":` */
  i64 name_length;
  i64 kind;
  struct source texts; /* of AS_TEXTS; of AS_DECIMALS, the shortest decimal numbers */
  const u8 *values;    /* of other kinds; of booleans, bits */
  i64 first_bit;       /* of these bits */
  const u8 *valid;     /* null if no value is null */
  i64 first_valid_bit;
};

struct json_writer {
  i64 rows;
  const u8 *valid; /* rows that are null get no bytes; null if there are none */
  i64 first_valid_bit;
  const u8 *before; /* is written before each object */
  i64 before_length;
  const struct written_column *columns;
  i64 column_count;
  i32 *offsets; /* rows + 1 */
  u8 *data;
  i64 capacity;
};

struct room {
  u8 *at;
  u8 *end;
};

static inline int bit(const u8 *bits, i64 at) { return bits[at >> 3] >> (at & 7) & 1; }

static inline int put_bytes(struct room *r, const void *bytes, i64 length) {
  if (r->end - r->at < length) return NEEDS_ROOM;
  r->at = put(r->at, (struct field){bytes, length});
  return 0;
}

/* ---- texts --------------------------------------------------------------------------------- */

static const char HEX[] = "0123456789ABCDEF";

/* Return the letter that stands for a character after a backslash; 'u' for a hexadecimal number, and 0
   for a character that needs no backslash. */
static inline u8 escape_of(u8 c) {
  if (c >= 0x20) return c == '"' || c == '\\' ? c : 0;
  switch (c) {
    case '\b': return 'b';
    case '\t': return 't';
    case '\n': return 'n';
    case '\f': return 'f';
    case '\r': return 'r';
    default: return 'u';
  }
}

/* Return whether one of 8 bytes needs a backslash. */
static inline u64 any_escape(u64 word) {
  const u64 ones = 0x0101010101010101, tops = 0x8080808080808080;
  u64 quote = word ^ ones * '"', backslash = word ^ ones * '\\';
  return (((quote - ones) & ~quote) | ((backslash - ones) & ~backslash) |
          ((word - ones * 0x20) & ~word)) & tops;
}

static int put_string(struct room *r, struct field text) {
  const u8 *from = text.data, *end = from + text.length;
  if (r->end - r->at < text.length + 2) return NEEDS_ROOM;
  *r->at++ = '"';
  while (from < end) {
    /* There is room for what is left and the closing quote; an escape needs up to 5 bytes more. */
    if (end - from >= 8) {
      u64 word;
      copy(&word, from, 8);
      if (!any_escape(word)) {
        copy(r->at, &word, 8);
        r->at += 8, from += 8;
        continue;
      }
    }
    u8 c = *from++, letter = escape_of(c);
    if (!letter) {
      *r->at++ = c;
      continue;
    }
    if (r->end - r->at < end - from + 7) return NEEDS_ROOM;
    *r->at++ = '\\';
    *r->at++ = letter;
    if (letter == 'u') {
      *r->at++ = '0', *r->at++ = '0';
      *r->at++ = (u8)HEX[c >> 4], *r->at++ = (u8)HEX[c & 15];
    }
  }
  *r->at++ = '"';
  return 0;
}

/* ---- numbers ------------------------------------------------------------------------------- */

static u8 *put_digits(u8 *at, i64 value) {
  u8 digits[20];
  int count = 0;
  u64 left = value < 0 ? 0 - (u64)value : (u64)value;
  if (value < 0) *at++ = '-';
  do {
    digits[count++] = (u8)('0' + left % 10);
    left /= 10;
  } while (left);
  while (count) *at++ = digits[--count];
  return at;
}

static int put_integer(struct room *r, i64 value) {
  if (r->end - r->at < NUMBER_BYTES_MAX) return NEEDS_ROOM;
  r->at = put_digits(r->at, value);
  return 0;
}

/* A decimal number: 0.DIGITS times ten to the power of `point`. */
struct decimal {
  const u8 *word; /* a text that is no number */
  int is_negative;
  i64 count;
  i64 point;
  u8 digits[DECIMAL_DIGITS_MAX];
};

static int is_word(struct field text, const char *word) {
  for (i64 at = 0; at < text.length; at++, word++)
    if (!*word || text.data[at] != (u8)*word) return 0;
  return !*word;
}

/* Read a number such as -12.5 or 1e-07. */
static int read_decimal(struct field text, struct decimal *d) {
  const u8 *at = text.data, *end = at + text.length;
  i64 exponent = 0, sign = 1;
  int has_point = 0;
  d->count = d->point = 0;
  d->is_negative = at < end && *at == '-';
  if (d->is_negative) at++;
  for (; at < end && *at != 'e'; at++) {
    if (*at == '.') {
      if (has_point++) return INVALID;
      continue;
    }
    if ((u8)(*at - '0') > 9) return INVALID;
    if (!has_point) d->point++;
    if (!d->count && *at == '0') {
      d->point--; /* a leading zero */
      continue;
    }
    if (d->count == DECIMAL_DIGITS_MAX) return INVALID;
    d->digits[d->count++] = *at;
  }
  if (at < end) {
    at++;
    if (at < end && (*at == '-' || *at == '+')) sign = *at++ == '-' ? -1 : 1;
    for (; at < end; at++) {
      if ((u8)(*at - '0') > 9 || exponent > 9999) return INVALID;
      exponent = exponent * 10 + *at - '0';
    }
  }
  d->point += sign * exponent;
  while (d->count && d->digits[d->count - 1] == '0') d->count--;
  return 0;
}

static void put_zeros(u8 **at, i64 count) {
  while (count-- > 0) *(*at)++ = '0';
}

/* Write a number as Java's Double.toString does. */
static int put_double(struct room *r, struct field text) {
  struct decimal d;
  if (is_word(text, "nan")) return put_bytes(r, "\"NaN\"", 5);
  if (is_word(text, "inf")) return put_bytes(r, "\"Infinity\"", 10);
  if (is_word(text, "-inf")) return put_bytes(r, "\"-Infinity\"", 11);
  TRY(read_decimal(text, &d));
  if (r->end - r->at < d.count + NUMBER_BYTES_MAX) return NEEDS_ROOM;
  u8 *at = r->at;
  if (d.is_negative) *at++ = '-';
  if (!d.count) {
    copy(at, "0.0", 3);
    at += 3;
  } else if (d.point > 7 || d.point < -2) { /* not from 0.001 up to ten million */
    *at++ = d.digits[0];
    *at++ = '.';
    if (d.count == 1) *at++ = '0';
    for (i64 i = 1; i < d.count; i++) *at++ = d.digits[i];
    *at++ = 'E';
    at = put_digits(at, d.point - 1);
  } else {
    if (d.point <= 0) {
      *at++ = '0', *at++ = '.';
      put_zeros(&at, -d.point);
    }
    for (i64 i = 0; i < d.count; i++) {
      if (i == d.point && i) *at++ = '.';
      *at++ = d.digits[i];
    }
    if (d.count <= d.point) {
      put_zeros(&at, d.point - d.count);
      *at++ = '.', *at++ = '0';
    }
  }
  r->at = at;
  return 0;
}

/* ---- objects ------------------------------------------------------------------------------- */

static i64 integer(const struct written_column *c, i64 row) {
  switch (c->kind) {
    case AS_8: return ((const i8 *)c->values)[row];
    case AS_16: return ((const i16 *)(const void *)c->values)[row];
    case AS_32: return ((const i32 *)(const void *)c->values)[row];
    default: return ((const i64 *)(const void *)c->values)[row];
  }
}

static int put_value(struct room *r, const struct written_column *c, i64 row) {
  if (c->kind == AS_TEXTS || c->kind == AS_DECIMALS) {
    struct field text;
    TRY(get(&c->texts, row, &text));
    if (text.length < 0) return put_bytes(r, "null", 4);
    return c->kind == AS_TEXTS ? put_string(r, text) : put_double(r, text);
  }
  if (c->valid && !bit(c->valid, c->first_valid_bit + row)) return put_bytes(r, "null", 4);
  if (c->kind != AS_BITS) return put_integer(r, integer(c, row));
  return bit(c->values, c->first_bit + row) ? put_bytes(r, "true", 4) : put_bytes(r, "false", 5);
}

/* Write an object for each row, and the offsets of all. Return NEEDS_ROOM if they are longer than the
   capacity. */
EXPORT i64 eos_json_write(const struct json_writer *w) {
  struct room room = {w->data, w->data + w->capacity};
  w->offsets[0] = 0;
  for (i64 row = 0; row < w->rows; row++) {
    if (!w->valid || bit(w->valid, w->first_valid_bit + row)) {
      TRY(put_bytes(&room, w->before, w->before_length));
      TRY(put_bytes(&room, "{", 1));
      for (i64 i = 0; i < w->column_count; i++) {
        const struct written_column *c = &w->columns[i];
        TRY(put_bytes(&room, c->name, c->name_length));
        TRY(put_value(&room, c, row));
      }
      TRY(put_bytes(&room, "}", 1));
    }
    if (room.at - w->data > I32_MAX) return INVALID;
    w->offsets[row + 1] = (i32)(room.at - w->data);
  }
  return 0;
}
