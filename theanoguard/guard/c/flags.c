/* The exception flags of the processor.
 *
 * IEEE 754: invalid, divide by zero and overflow are raised by the operation that makes a NaN or an
 * Inf.  The flags are sticky and belong to a thread.  On x86-64 only those of SSE and AVX matter
 * (MXCSR), which are much cheaper to reach than what <fenv.h> also saves.
 */
#if defined(__x86_64__) && defined(__GNUC__)
static inline unsigned read_flags(void) {
  unsigned state;
  __asm__ volatile("stmxcsr %0" : "=m"(state));
  return state & 0x0d;
}
static inline void clear_flags(void) {
  unsigned state;
  __asm__ volatile("stmxcsr %0" : "=m"(state));
  if (!(state & 0x0d)) return; /* to write takes longer than to read */
  state &= ~0x3fu;
  __asm__ volatile("ldmxcsr %0" : : "m"(state));
}
static inline void raise_flags(unsigned flags) {
  unsigned state;
  __asm__ volatile("stmxcsr %0" : "=m"(state));
  state |= flags;
  __asm__ volatile("ldmxcsr %0" : : "m"(state));
}
#elif defined(__aarch64__) && defined(__GNUC__)
static inline unsigned read_flags(void) {
  uint64_t state;
  __asm__ volatile("mrs %0, fpsr" : "=r"(state));
  return (unsigned)(state & 0x07);
}
static inline void clear_flags(void) {
  uint64_t state;
  __asm__ volatile("mrs %0, fpsr" : "=r"(state));
  state &= ~(uint64_t)0x1f;
  __asm__ volatile("msr fpsr, %0" : : "r"(state));
}
static inline void raise_flags(unsigned flags) {
  uint64_t state;
  __asm__ volatile("mrs %0, fpsr" : "=r"(state));
  state |= flags;
  __asm__ volatile("msr fpsr, %0" : : "r"(state));
}
#else
#define OF_INTEREST (FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW)
static inline unsigned read_flags(void) { return (unsigned)fetestexcept(OF_INTEREST); }
static inline void clear_flags(void) { feclearexcept(FE_ALL_EXCEPT); }
static inline void raise_flags(unsigned flags) { feraiseexcept((int)flags); }
#endif

/* Whether code that is compiled like this one raises the flags, alone and in vectors. */
static int flags_work(void) {
#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
  return 0;
#else
  static volatile double numbers[4][2] = {{0.0, 0.0}, {1.0, 0.0}, {1e200, 1e-200}, {1.0, 2.0}};
  double a[16], b[16], c[16];
  for (int test = 0; test < 4; test++) {
    for (int vector = 0; vector < 2; vector++) {
      for (int i = 0; i < 16; i++) {
        const int at = i == 5 ? test : 3;
        a[i] = numbers[at][0];
        b[i] = numbers[at][1];
      }
      clear_flags();
      if (vector) {
        for (int i = 0; i < 16; i++) c[i] = a[i] / b[i];
      } else {
        c[5] = a[5] / b[5];
      }
      volatile double kept = c[5];
      (void)kept;
      if ((read_flags() != 0) != (test < 3)) return 0;
      if ((test == 0 && !isnan(kept)) || (test > 0 && test < 3 && !isinf(kept))) return 0;
    }
  }
  clear_flags();
  return 1;
#endif
}
