/* Decode records of Kafka's format v2 into Arrow buffers. */

#include "kernels.h"

enum { DONE = 0, FULL = 1, TOO_LARGE = 2, NEEDS_HEADERS = 3, BROKEN = -1 };

/* Why the bytes are broken. eos/native/structs.py has a text for each. */
enum {
  E_TRUNCATED = 1, /* a record ends before its fields do */
  E_NUMBER = 2,    /* a varint of more than 64 bits */
  E_LENGTH = 3,    /* a record is longer than its fields, or the batch than its records */
  E_HEADERS = 4,   /* an impossible number of headers */
  E_NAME = 5,      /* a header without a name */
  E_OFFSET = 6     /* an offset outside of the record batch */
};

/* Arrow buffers of a binary column. `used` counts the bytes of all values so far. */
struct column {
  i32 *offsets;
  u8 *data;
  u8 *valid;
  i64 used;
  i64 nulls;
};

struct decoder {
  /* the record batch */
  const u8 *records;
  i64 length;
  i64 count;
  i64 base_offset;
  i64 delta_max; /* the largest valid offset delta */
  i64 first_ms;
  i64 append_ms;
  i64 is_append_time;
  i64 start; /* records with start <= offset < end are decoded; all others are only checked */
  i64 end;
  /* progress within it */
  i64 at;
  i64 done;
  /* limits of the output */
  i64 rows_max;
  i64 bytes_max;
  /* progress of the output */
  i64 rows;
  i64 bytes;
  struct column key;
  struct column value;
  i64 *offset;
  i64 *timestamp;
  i32 *timestamp_type;
  /* headers, only if `list` is not null: one list entry per row, one header entry per header */
  i32 *list;
  u8 *list_valid;
  struct column name;
  struct column header_value;
  i64 headers;
  i64 rows_with_headers;
  i64 has_wide_names; /* whether a name has a byte that is not ASCII */
  /* the size of a record that did not fit, and the error number for broken bytes */
  i64 record_bytes;
  i64 error;
};

struct record {
  i64 time_delta;
  i64 offset_delta;
  struct field key;
  struct field value;
  const u8 *headers;
  i64 header_count;
  i64 bytes;
};

/* Bytes that a header adds to the size of its row: its two offsets. So a batch of many empty headers
   is bounded, too. */
#define HEADER_COST 8

static inline int number(const u8 **at, const u8 *end, i64 *out) {
  const u8 *p = *at;
  u64 value = 0;
  if (p < end && *p < 0x80) { /* most numbers have one byte or two */
    value = *p++;
  } else if (end - p > 1 && p[1] < 0x80) {
    value = (u64)(p[0] & 0x7f) | (u64)p[1] << 7;
    p += 2;
  } else {
    int shift = 0;
    for (;;) {
      if (p >= end) return E_TRUNCATED;
      u8 byte = *p++;
      if (shift == 63 && byte > 1) return E_NUMBER;
      value |= (u64)(byte & 0x7f) << shift;
      if (byte < 0x80) break;
      shift += 7;
    }
  }
  *at = p;
  *out = (i64)(value >> 1) ^ -(i64)(value & 1);
  return 0;
}

static inline int blob(const u8 **at, const u8 *end, struct field *out) {
  i64 length;
  int error = number(at, end, &length);
  if (error) return error;
  if (length > end - *at) return E_TRUNCATED;
  out->data = *at;
  out->length = length < 0 ? -1 : length;
  if (length > 0) *at += length;
  return 0;
}

/* Check a record's headers, which must end at `end`, and add their sizes to the record's size. */
static int check_headers(const u8 *at, const u8 *end, struct record *r) {
  TRY(number(&at, end, &r->header_count));
  r->headers = at;
  if (r->header_count < 0 || r->header_count > (end - at) / 2) return E_HEADERS;
  for (i64 i = 0; i < r->header_count; i++) {
    struct field name, value;
    TRY(blob(&at, end, &name));
    if (name.length < 0) return E_NAME;
    TRY(blob(&at, end, &value));
    r->bytes += HEADER_COST + name.length + (value.length > 0 ? value.length : 0);
  }
  return at == end ? 0 : E_LENGTH;
}

/* Parse the record at `*at`, and move `*at` to its end. */
static inline int parse(const u8 **at, const u8 *end, struct record *r) {
  i64 length;
  TRY(number(at, end, &length));
  if (length < 1 || length > end - *at) return E_TRUNCATED;
  const u8 *p = *at + 1; /* skip the attributes */
  const u8 *stop = *at + length;
  TRY(number(&p, stop, &r->time_delta));
  TRY(number(&p, stop, &r->offset_delta));
  TRY(blob(&p, stop, &r->key));
  TRY(blob(&p, stop, &r->value));
  r->bytes = (r->key.length > 0 ? r->key.length : 0) + (r->value.length > 0 ? r->value.length : 0);
  if (p < stop && *p == 0) {
    r->header_count = 0;
    if (p + 1 != stop) return E_LENGTH;
  } else {
    TRY(check_headers(p, stop, r));
  }
  *at = stop;
  return 0;
}

static inline void append(struct column *c, i64 row, struct field f) {
  put_bit(c->valid, row, f.length >= 0);
  if (f.length > 0) {
    put(c->data + c->used, f);
    c->used += f.length;
  } else if (f.length < 0) {
    c->nulls++;
  }
  c->offsets[row + 1] = (i32)c->used;
}

/* Append a record's headers to the header columns. `parse` has checked that they are valid. */
static void append_headers(struct decoder *d, const struct record *r, const u8 *end) {
  const u8 *at = r->headers;
  for (i64 i = 0; i < r->header_count; i++) {
    struct field name, value;
    if (blob(&at, end, &name) || blob(&at, end, &value)) return;
    for (i64 b = 0; b < name.length; b++) d->has_wide_names |= name.data[b] >> 7;
    append(&d->name, d->headers, name);
    append(&d->header_value, d->headers, value);
    d->headers++;
  }
  d->rows_with_headers++;
}

/* Return a record's time in microseconds; the nearest one if it does not fit: brokers accept any time,
   such as nanoseconds. */
static inline i64 timestamp_us(const struct decoder *d, const struct record *r) {
  i64 ms = d->append_ms, us;
  if (!d->is_append_time && __builtin_add_overflow(d->first_ms, r->time_delta, &ms))
    return r->time_delta < 0 ? I64_MIN : I64_MAX;
  if (__builtin_mul_overflow(ms, 1000, &us)) return ms < 0 ? I64_MIN : I64_MAX;
  return us;
}

static i64 broken(struct decoder *d, int error) {
  d->error = error;
  return BROKEN;
}

/* Append the rest of the record batch to the columns. Return DONE at its end; FULL if no further row
   fits; TOO_LARGE if a record does not even fit into empty columns; NEEDS_HEADERS if a record has
   headers and there are no columns for them; BROKEN for invalid bytes. After FULL, TOO_LARGE and
   NEEDS_HEADERS, the next call continues with the same record. */
EXPORT i64 eos_decode(struct decoder *d) {
  const u8 *at = d->records + d->at, *end = d->records + d->length;
  for (; d->done < d->count; d->done++) {
    struct record r = {0};
    int error = parse(&at, end, &r);
    if (error) return broken(d, error);
    i64 offset;
    if (r.offset_delta < 0 || r.offset_delta > d->delta_max ||
        __builtin_add_overflow(d->base_offset, r.offset_delta, &offset))
      return broken(d, E_OFFSET);
    if (offset >= d->start && offset < d->end) {
      i64 row = d->rows;
      if (row >= d->rows_max) return FULL;
      if (r.bytes > d->bytes_max - d->bytes) {
        d->record_bytes = r.bytes;
        return row ? FULL : TOO_LARGE;
      }
      if (r.header_count && !d->list) return NEEDS_HEADERS;
      append(&d->key, row, r.key);
      append(&d->value, row, r.value);
      d->offset[row] = offset;
      d->timestamp[row] = timestamp_us(d, &r);
      d->timestamp_type[row] = (i32)d->is_append_time;
      if (d->list) {
        if (r.header_count) append_headers(d, &r, at);
        put_bit(d->list_valid, row, r.header_count > 0);
        d->list[row + 1] = (i32)d->headers;
      }
      d->bytes += r.bytes;
      d->rows = row + 1;
    }
    d->at = at - d->records;
  }
  if (at != end) return broken(d, E_LENGTH);
  return DONE;
}
