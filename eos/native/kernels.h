/* Declarations that the C files share. decode.c and encode.c convert records of Kafka's format v2 to
   Arrow buffers and back. dedup.c reads Arrow buffers. json.c parses JSON texts into Arrow buffers, and
   json_write.c writes JSON texts.

   Plain C ABI: no allocation, no global state, no Python. A caller passes one struct of 64-bit fields
   by its address; eos/native/structs.py has the same structs. Every read is checked against the given
   length, because the bytes come from a broker. Every write is checked against the capacity that the
   caller gives. */

#ifndef EOS_KERNELS_H
#define EOS_KERNELS_H

/* No header of the C library is included: a machine may have a compiler, but no such headers. */
typedef __UINT8_TYPE__ u8;
typedef __UINT32_TYPE__ u32;
typedef __UINT64_TYPE__ u64;
typedef __INT32_TYPE__ i32;
typedef __INT64_TYPE__ i64;
typedef __SIZE_TYPE__ usize;

#define I32_MAX 0x7fffffff
#define I64_MAX __INT64_MAX__
#define I64_MIN (-I64_MAX - 1)
#define copy __builtin_memcpy
#define fill __builtin_memset

#define EXPORT __attribute__((visibility("default")))

struct field {
  const u8 *data;
  i64 length; /* -1 for a null */
};

/* Copy a field's bytes to `at`, and return the end of the copy. Most keys are short, and a call of
   memcpy would take longer than to copy them. */
static inline u8 *put(u8 *at, struct field f) {
  if (f.length <= 0) return at;
  u64 n = (u64)f.length;
  if (n > 16) {
    copy(at, f.data, n);
  } else if (n >= 8) {
    u64 first, last;
    copy(&first, f.data, 8);
    copy(&last, f.data + n - 8, 8);
    copy(at, &first, 8);
    copy(at + n - 8, &last, 8);
  } else {
    for (u64 i = 0; i < n; i++) at[i] = f.data[i];
  }
  return at + n;
}

#define TRY(expression)                \
  do {                                 \
    int error_ = (expression);         \
    if (error_) return error_;         \
  } while (0)

/* The results of a function that fails. eos/native/structs.py has the same numbers. */
enum { NULL_NAME = 1, NEEDS_ROOM = 2, NOT_PLAIN = 3, INVALID = -1 };

/* An Arrow column of byte strings. */
struct source {
  const i32 *offsets;
  const u8 *data;
  i64 size;        /* bytes in `data` */
  const u8 *valid; /* null if no value is null */
  i64 first_bit;
  i64 rows;
};

/* Get the value of a row. Return INVALID if the row or its offsets are outside the column. */
static inline int get(const struct source *s, i64 row, struct field *out) {
  if (row < 0 || row >= s->rows) return INVALID;
  if (s->valid) {
    i64 bit = s->first_bit + row;
    if (!(s->valid[bit >> 3] >> (bit & 7) & 1)) {
      out->data = s->data;
      out->length = -1;
      return 0;
    }
  }
  i64 start = s->offsets[row], end = s->offsets[row + 1];
  if (start < 0 || end < start || end > s->size) return INVALID;
  out->data = s->data + start;
  out->length = end - start;
  return 0;
}

static inline void put_bit(u8 *bits, i64 at, int is_set) {
  if ((at & 7) == 0) bits[at >> 3] = 0;
  bits[at >> 3] |= (u8)((is_set != 0) << (at & 7));
}

#endif
