/* Arithmetic of generated kernels: vectors of W numbers, and the functions of index notation on them.

   With FIELD, a number is a residue modulo the prime 2^31 - 1. Functions such as exp are hashes, relu is the identity, and
   comparisons compare residues. A kernel over this field can be compared exactly with the definitions from which it was
   generated. */

#include <math.h>
#include <stdint.h>
#include <string.h>

#ifdef FIELD
typedef int64_t number;
typedef int64_t lanes;
#define PRIME 2147483647
#define NUMBER(real, residue) ((number)(residue))
#define INDEX(i) ((number)(((i) % PRIME + PRIME) % PRIME))
#define LOWEST 0
#else
typedef float number;
typedef int32_t lanes;
#define NUMBER(real, residue) ((number)(real))
#define INDEX(i) ((number)(i))
#define LOWEST (-INFINITY)
#endif

/* The iterations from `begin` to `end` - 1 of a loop of a nest. */
typedef void Share(const number *const *in, number *const *out, number *scratch, long begin, long end);

/* Threads, of which each takes `each` of `count` iterations at once. */
typedef struct Workers {
    void (*share)(struct Workers *, Share *, const number *const *in, number *const *out, number *scratch, long count, long each);
} Workers;

typedef number V __attribute__((vector_size(W * sizeof(number))));
typedef number U __attribute__((vector_size(W * sizeof(number)), aligned(sizeof(number))));
typedef lanes M __attribute__((vector_size(W * sizeof(number))));

#define INLINE static inline __attribute__((always_inline, unused))
#define EACH(call) V result; for (int l = 0; l < W; l++) result[l] = (call); return result

INLINE long floor_div(long a, long b) { return a / b - (a % b < 0); }

INLINE V splat(number x) { V zero = {0}; return x - zero; }
INLINE V load(const number *p) { return *(const U *)p; }
INLINE void store(number *p, V x) { *(U *)p = x; }

/* Keep a vector that several rows of a tile use in a register. Compilers would otherwise read it once for each row. */
#if defined(FIELD)
#define KEEP(x) ((void)0)
#elif defined(__AVX512F__)
#define KEEP(x) __asm__("" : "+v"(x))
#elif (defined(__AVX__) && W <= 8) || (defined(__SSE__) && W <= 4)
#define KEEP(x) __asm__("" : "+x"(x))
#elif defined(__ARM_NEON) && W <= 4
#define KEEP(x) __asm__("" : "+w"(x))
#else
#define KEEP(x) ((void)0)
#endif

/* The first n lanes: of the memory at p, where the other lanes of the result are zero, or of x, with the number `rest` behind. */
#if defined(__AVX512F__) && !defined(FIELD) && W == 16
#include <immintrin.h>
#define MASK(n) ((__mmask16)((1u << (n)) - 1))
INLINE V load_some(const number *p, int n) { return (V)_mm512_maskz_loadu_ps(MASK(n), p); }
INLINE void store_some(number *p, V x, int n) { _mm512_mask_storeu_ps(p, MASK(n), (__m512)x); }
INLINE V first(int n, V x, number rest) { return (V)_mm512_mask_mov_ps(_mm512_set1_ps(rest), MASK(n), (__m512)x); }
#else
INLINE V load_some(const number *p, int n) { V x = {0}; for (int l = 0; l < n; l++) x[l] = p[l]; return x; }
INLINE void store_some(number *p, V x, int n) { for (int l = 0; l < n; l++) p[l] = x[l]; }
INLINE V first(int n, V x, number rest) { V y = splat(rest); for (int l = 0; l < n; l++) y[l] = x[l]; return y; }
#endif

/* The position that an index selects along an axis of n elements, or -1. Negative indices count from the end. */
INLINE long place(number i, long n) {
#ifdef FIELD
    return i < n ? (long)i : i >= PRIME - n ? (long)(i - PRIME + n) : -1;
#else
    if (!(i >= -n && i < n) || i != (number)(long)i) return -1;
    return (long)i + (i < 0 ? n : 0);
#endif
}

/* Whether a kernel of this thread read a row at an index outside -n to n - 1. ONNX defines no result for such an index. */
static _Thread_local int out_of_range;

/* The position that an index, rounded down, selects modulo n. */
INLINE long wrapped(number i, long n) {
#ifdef FIELD
    return i % n;
#else
    if (!(i >= -n && i < n)) out_of_range = 1;
    if (!(i > -9e18f && i < 9e18f)) return 0;
    long rest = (long)floorf(i) % n;
    return rest + (rest < 0 ? n : 0);
#endif
}

INLINE V blend(M mask, V a, V b) { return (V)((mask & (M)a) | (~mask & (M)b)); }

#ifdef FIELD
/* The residue of x modulo the prime 2^31 - 1, for x from 0 to 2^62. */
INLINE V reduced(V x) {
    V y = (x & PRIME) + (x >> 31);
    V z = (y & PRIME) + (y >> 31);
    return z - ((V)(z >= PRIME) & PRIME);
}
INLINE V add_v(V a, V b) { return reduced(a + b); }
INLINE V sub_v(V a, V b) { return reduced(a - b + PRIME); }
INLINE V mul_v(V a, V b) { return reduced(a * b); }
INLINE V hashed(V x, number salt) { return mul_v(add_v(mul_v(x, x), splat(salt)), add_v(x, splat(3 * salt))); }
#define HASH(name, salt) INLINE V name##_v(V x) { return hashed(x, salt); }
HASH(exp, 101) HASH(log, 103) HASH(erf, 107) HASH(sqrt, 109) HASH(rsqrt, 113) HASH(reciprocal, 127)
HASH(sigmoid, 131) HASH(tanh, 137)
INLINE V power_v(V a, V b) { return add_v(hashed(a, 139), hashed(b, 149)); }
INLINE V quotient_v(V a, V b) { return mul_v(a, reciprocal_v(b)); }
INLINE V divided_v(V a, V reciprocal) { return mul_v(a, reciprocal); }
INLINE V plus_product_v(V sum, V a, V b) { return add_v(sum, mul_v(a, b)); }
INLINE V relu_v(V x) { return x; }
#else
INLINE V add_v(V a, V b) { return a + b; }
INLINE V sub_v(V a, V b) { return a - b; }

/* Compilers may round a sum and a product once, but x * x - y * y must be 0 for equal x and y. */
INLINE V mul_v(V a, V b) { V product = a * b; KEEP(product); return product; }
INLINE V plus_product_v(V sum, V a, V b) { return sum + a * b; }

INLINE V sqrt_v(V x) { EACH(sqrtf(x[l])); }
INLINE V reciprocal_v(V x) { return 1 / x; }
INLINE V quotient_v(V a, V b) { return a / b; }
INLINE V divided_v(V a, V by) { return a / by; }
INLINE V rsqrt_v(V x) { return 1 / sqrt_v(x); }
INLINE V log_v(V x) { EACH(logf(x[l])); }
INLINE V power_v(V a, V b) { EACH(powf(a[l], b[l])); }

/* 2^n for integers n from -126 to 127. exp multiplies by two such powers, to reach numbers outside this range. */
INLINE V power_of_two(M n) { return (V)((n + 127) << 23); }

INLINE V exp_v(V x) {
    V y = blend(x > 89, splat(89), x);
    y = blend(y < -104, splat(-104), y);
    V rounder = splat(12582912.0f);
    V n = (y * 1.44269504f + rounder) - rounder;
    V r = (y - n * 0.693145752f) - n * 1.42860677e-6f;
    V p = splat(1.98756929e-4f);
    p = p * r + 1.39819994e-3f;
    p = p * r + 8.33345205e-3f;
    p = p * r + 4.16657962e-2f;
    p = p * r + 1.66666657e-1f;
    p = p * r + 0.5f;
    p = p * r * r + r + 1;
    M whole = __builtin_convertvector(n, M), half = whole >> 1;
    V result = p * power_of_two(half) * power_of_two(whole - half);
    return blend(x != x, x, result);
}

INLINE V sigmoid_v(V x) {
    V e = exp_v(blend(x > 0, -x, x)), r = 1 / (1 + e);
    return blend(x > 0, r, e * r);
}

/* tanh by a polynomial where |x| is small, and by exp elsewhere. The polynomial is the one of the Cephes library. */
INLINE V tanh_v(V x) {
    V s = x * x;
    V p = splat(-5.70498872745e-3f);
    p = p * s + 2.06390887954e-2f;
    p = p * s - 5.37397155531e-2f;
    p = p * s + 1.33314422036e-1f;
    p = p * s - 3.33332819422e-1f;
    V near = p * s * x + x;
    V far = 1 - 2 / (exp_v(2 * x) + 1);
    return blend(s < 0.390625f, near, far);
}

/* erf by a polynomial where |x| is small, and by exp of a polynomial elsewhere. */
INLINE V erf_v(V x) {
    M sign = (M)x & (M)splat(-0.0f);
    V t = (V)((M)x ^ sign), s = x * x;
    V u = splat(-1.72853470e-5f) * t + 3.83197126e-4f;
    V v = splat(-3.88396438e-3f) * t + 2.42546219e-2f;
    u = u * s + v;
    u = u * t - 1.06777877e-1f;
    u = u * t - 6.34846687e-1f;
    u = u * t - 1.28717512e-1f;
    u = u * t - t;
    V far = (V)((M)(1 - exp_v(u)) | sign);
    far = blend(t > 9.5f, (V)((M)splat(1) | sign), far);
    V p = splat(-5.96761703e-4f);
    p = p * s + 4.99119423e-3f;
    p = p * s - 2.67681349e-2f;
    p = p * s + 1.12819925e-1f;
    p = p * s - 3.76125336e-1f;
    p = p * s + 1.28379166e-1f;
    V near = p * x + x;
    V result = blend(t > 0.927734375f, far, near);
    return blend(x != x, x, result);
}
#endif

/* A NaN operand gives NaN, as in the definitions. */
INLINE V larger_v(V a, V b) { return blend(a != a, a, blend(a > b, a, b)); }
#ifdef FIELD
INLINE V smaller_v(V a, V b) { V zero = {0}; return sub_v(zero, larger_v(sub_v(zero, a), sub_v(zero, b))); }
#else
INLINE V smaller_v(V a, V b) { return blend(a != a, a, blend(a < b, a, b)); }
INLINE V relu_v(V x) { return larger_v(x, splat(0)); }
#endif
INLINE V zero_v(V x) { return blend(x == 0, splat(1), splat(0)); }
INLINE V positive_v(V x) { return blend(x > 0, splat(1), splat(0)); }
INLINE V choose_v(V c, V a, V b) { return blend(c != 0, a, b); }

INLINE number add_s(number a, number b) { return add_v(splat(a), splat(b))[0]; }
INLINE number sub_s(number a, number b) { return sub_v(splat(a), splat(b))[0]; }
INLINE number larger_s(number a, number b) { return larger_v(splat(a), splat(b))[0]; }
INLINE number smaller_s(number a, number b) { return smaller_v(splat(a), splat(b))[0]; }
INLINE number power_s(number a, number b) { return power_v(splat(a), splat(b))[0]; }
INLINE number choose_s(number c, number a, number b) { return c != 0 ? a : b; }
#ifdef FIELD
INLINE number mul_s(number a, number b) { return mul_v(splat(a), splat(b))[0]; }
INLINE number sqrt_s(number x) { return sqrt_v(splat(x))[0]; }
INLINE number reciprocal_s(number x) { return reciprocal_v(splat(x))[0]; }
INLINE number quotient_s(number a, number b) { return quotient_v(splat(a), splat(b))[0]; }
INLINE number divided_s(number a, number reciprocal) { return mul_s(a, reciprocal); }
#else
INLINE number mul_s(number a, number b) { number product = a * b; KEEP(product); return product; }
INLINE number sqrt_s(number x) { return sqrtf(x); }
INLINE number reciprocal_s(number x) { return 1 / x; }
INLINE number quotient_s(number a, number b) { return a / b; }
INLINE number divided_s(number a, number by) { return a / by; }
#endif
#define SCALAR(name) INLINE number name##_s(number x) { return name##_v(splat(x))[0]; }
SCALAR(exp) SCALAR(log) SCALAR(erf) SCALAR(rsqrt) SCALAR(sigmoid) SCALAR(tanh)
SCALAR(relu) SCALAR(zero) SCALAR(positive)

/* The lanes that the macro `lane` selects from the vectors x and y. n must be a literal number. */
#define OF_FOUR(lane, i, n) lane(i, n), lane(i + 1, n), lane(i + 2, n), lane(i + 3, n)
#if W == 16
#define OF_LANES(lane, n) OF_FOUR(lane, 0, n), OF_FOUR(lane, 4, n), OF_FOUR(lane, 8, n), OF_FOUR(lane, 12, n)
#elif W == 8
#define OF_LANES(lane, n) OF_FOUR(lane, 0, n), OF_FOUR(lane, 4, n)
#else
#define OF_LANES(lane, n) OF_FOUR(lane, 0, n)
#endif
#ifdef __clang__
#define MERGED(lane, x, y, n) __builtin_shufflevector(x, y, OF_LANES(lane, n))
#else
#define MERGED(lane, x, y, n) __builtin_shuffle(x, y, (M){OF_LANES(lane, n)})
#endif

/* The lanes moved n places to the front, and the first n lanes to the end. n must be a literal number. */
#define AT(i, n) (((i) + (n)) % W)
#define TURNED(x, n) MERGED(AT, x, x, n)

/* Transpose W vectors of W lanes. A step exchanges blocks of n lanes between vectors whose numbers differ by n. */
#define LOW(i, n) ((i) & (n) ? W + (i) - (n) : (i))
#define HIGH(i, n) ((i) & (n) ? W + (i) : (i) + (n))
#define EXCHANGE(n) \
    for (int i = 0; i < W; i++) \
        if (!(i & n)) { \
            V x = rows[i], y = rows[i + n]; \
            rows[i] = MERGED(LOW, x, y, n); \
            rows[i + n] = MERGED(HIGH, x, y, n); \
        }

INLINE void transpose(V *rows) {
    EXCHANGE(1)
    EXCHANGE(2)
#if W > 4
    EXCHANGE(4)
#endif
#if W > 8
    EXCHANGE(8)
#endif
}

INLINE number sum_of(V x) {
    if (W > 8) x = add_v(x, TURNED(x, 8));
    if (W > 4) x = add_v(x, TURNED(x, 4));
    x = add_v(x, TURNED(x, 2));
    return add_v(x, TURNED(x, 1))[0];
}

INLINE number max_of(V x) {
    if (W > 8) x = larger_v(x, TURNED(x, 8));
    if (W > 4) x = larger_v(x, TURNED(x, 4));
    x = larger_v(x, TURNED(x, 2));
    return larger_v(x, TURNED(x, 1))[0];
}
