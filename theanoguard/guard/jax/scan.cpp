/* Does an array hold a bad number?  XLA calls `scan` on a CPU.
 *
 * Without its sign bit a number is an integer that grows with its magnitude.  Bad are the integers
 * above `good`, up to `top`.  The loop has no branch, so that the compiler makes vectors of it.
 */
#include <stdint.h>
#include "xla/ffi/api/c_api.h"

template <typename bits>
static bool is_bad(const void *data, int64_t n, bits max, bits good, bits top) {
  const bits *p = (const bits *)data;
  bits bad = 0; /* negative if a number is bad */
  for (int64_t i = 0; i < n; i++) {
    const bits x = p[i] & max;
    bad |= (bits)(good - x) & ~(bits)(top - x);
  }
  return bad < 0;
}

#define CASE(dtype, bits, max) \
  case dtype: found |= is_bad<bits>(b->data, n, max, (bits)range[0], (bits)range[1]); break;

/* The attribute `ranges` has `good` and `top` of each argument; the result is 1 or 0. */
extern "C" __attribute__((visibility("default"))) XLA_FFI_Error *scan(XLA_FFI_CallFrame *frame) {
  const auto more = frame->extension_start; /* (its type has other names in other releases) */
  if (more != NULL && more->type == XLA_FFI_Extension_Metadata) { /* XLA asks which API this is */
    XLA_FFI_Metadata *metadata = ((XLA_FFI_Metadata_Extension *)more)->metadata;
    metadata->api_version.major_version = XLA_FFI_API_MAJOR;
    metadata->api_version.minor_version = XLA_FFI_API_MINOR;
    return NULL;
  }
  const int64_t *range = (const int64_t *)((XLA_FFI_Array *)frame->attrs.attrs[0])->data;
  bool found = false;
  for (int64_t i = 0; i < frame->args.size; i++, range += 2) {
    const XLA_FFI_Buffer *b = (const XLA_FFI_Buffer *)frame->args.args[i];
    int64_t n = 1;
    for (int64_t d = 0; d < b->rank; d++) n *= b->dims[d];
    switch (b->dtype) {
      CASE(XLA_FFI_DataType_F16, int16_t, INT16_MAX)
      CASE(XLA_FFI_DataType_F32, int32_t, INT32_MAX)
      CASE(XLA_FFI_DataType_F64, int64_t, INT64_MAX)
      default: break; /* the guard passes no others */
    }
  }
  *(int32_t *)((XLA_FFI_Buffer *)frame->rets.rets[0])->data = found;
  return NULL;
}
