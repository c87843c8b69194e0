/* Declarations that decode.c and encode.c share. They convert records of Kafka's format v2 to Arrow
   buffers and back.

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
#define copy __builtin_memcpy
#define fill __builtin_memset

#define EXPORT __attribute__((visibility("default")))

/* Increase this number with every change of a struct or of a function's meaning. */
#define ABI_VERSION 1

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

#endif
