/* Sums over rows in memory, with X read once: what one look at them tells, and weighted Gram matrices. And what is
   worked out of many small contexts side by side: where their risks are least, and inverses of their Hessians.

   Rows come in pieces, which follow each other: each has a place in X, and a first and a last entry in the vectors with
   one entry per row. Sums are written by piece.

   Plain C without Python's headers, called through ctypes: one library serves every version of Python, and the
   interpreter is free to run other threads meanwhile. Compiled by hatch_build.py where there is a compiler;
   counterpoise.rows.compiled loads it, and numpy does the same work where it is missing. */

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Places are 64-bit integers, and rounding by a large number needs arithmetic in double precision. */
#if UINTPTR_MAX != UINT64_MAX
#error "only for 64-bit machines"
#endif

/* The checksum of this file, so that a library built from another one is not called. */
#ifndef VERSION
#define VERSION 0
#endif

/* Rows whose features stay in the nearest cache between the two products with them. */
#define MOST_ROWS 64
#define LEAST_ROWS 16
#define CACHED_ENTRIES 4096

/* Rows whose products are added up before they join those of other rows. */
#define BLOCK_ROWS 256

/* Columns of a Gram matrix, the intercept counted: more are left to the BLAS. */
#define MOST_COLUMNS 128

#define INLINE static inline __attribute__((always_inline))

/* The loader chooses what the processor has: AVX-512, AVX2 with FMA, or neither. */
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__clang__) && defined(__GNUC__) && __GNUC__ >= 12
#define FOR_EVERY_PROCESSOR __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#elif defined(__x86_64__) && defined(__gnu_linux__) && !defined(__clang__) && defined(__GNUC__)
#define FOR_EVERY_PROCESSOR __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FOR_EVERY_PROCESSOR
#endif

typedef double Eight __attribute__((vector_size(64), aligned(8)));

INLINE Eight load(const double *from) {
    Eight a;
    memcpy(&a, from, sizeof a);
    return a;
}

INLINE void store(double *to, Eight a) { memcpy(to, &a, sizeof a); }

INLINE double total(Eight a) { return ((a[0] + a[4]) + (a[1] + a[5])) + ((a[2] + a[6]) + (a[3] + a[7])); }

/* z = X theta + constant, four rows at a time: their sums do not wait for each other. */
INLINE void predict(const double *X, ptrdiff_t n, ptrdiff_t d, const double *theta, double constant, double *z) {
    ptrdiff_t whole = d & ~(ptrdiff_t)7, i = 0;
    for (; i + 4 <= n; i += 4) {
        const double *x0 = X + i * d, *x1 = x0 + d, *x2 = x1 + d, *x3 = x2 + d;
        Eight a0 = {0}, a1 = {0}, a2 = {0}, a3 = {0};
        for (ptrdiff_t j = 0; j < whole; j += 8) {
            Eight t = load(theta + j);
            a0 += load(x0 + j) * t;
            a1 += load(x1 + j) * t;
            a2 += load(x2 + j) * t;
            a3 += load(x3 + j) * t;
        }
        double s0 = total(a0), s1 = total(a1), s2 = total(a2), s3 = total(a3);
        for (ptrdiff_t j = whole; j < d; j++) {
            s0 += x0[j] * theta[j];
            s1 += x1[j] * theta[j];
            s2 += x2[j] * theta[j];
            s3 += x3[j] * theta[j];
        }
        z[i] = s0 + constant;
        z[i + 1] = s1 + constant;
        z[i + 2] = s2 + constant;
        z[i + 3] = s3 + constant;
    }
    for (; i < n; i++) {
        const double *x = X + i * d;
        Eight a = {0};
        for (ptrdiff_t j = 0; j < whole; j += 8) a += load(x + j) * load(theta + j);
        double s = total(a);
        for (ptrdiff_t j = whole; j < d; j++) s += x[j] * theta[j];
        z[i] = s + constant;
    }
}

/* sums += X' v, as many columns at a time as there are sums that need not wait for each other.

   Those of a block are added up before they join the others: long sums of single terms would lose digits. */
INLINE void gather(const double *X, ptrdiff_t n, ptrdiff_t d, const double *v, double *sums) {
    ptrdiff_t j = 0;
    for (; j + 32 <= d; j += 32) {
        Eight a0 = {0}, a1 = {0}, a2 = {0}, a3 = {0};
        for (ptrdiff_t i = 0; i < n; i++) {
            const double *x = X + i * d + j;
            a0 += load(x) * v[i];
            a1 += load(x + 8) * v[i];
            a2 += load(x + 16) * v[i];
            a3 += load(x + 24) * v[i];
        }
        store(sums + j, load(sums + j) + a0);
        store(sums + j + 8, load(sums + j + 8) + a1);
        store(sums + j + 16, load(sums + j + 16) + a2);
        store(sums + j + 24, load(sums + j + 24) + a3);
    }
    for (; j + 8 <= d; j += 8) {
        Eight a0 = {0}, a1 = {0};
        ptrdiff_t i = 0;
        for (; i + 2 <= n; i += 2) {
            a0 += load(X + i * d + j) * v[i];
            a1 += load(X + (i + 1) * d + j) * v[i + 1];
        }
        if (i < n) a0 += load(X + i * d + j) * v[i];
        store(sums + j, load(sums + j) + (a0 + a1));
    }
    for (; j < d; j++) {
        double a0 = 0.0, a1 = 0.0, a2 = 0.0, a3 = 0.0;
        ptrdiff_t i = 0;
        for (; i + 4 <= n; i += 4) {
            a0 += X[i * d + j] * v[i];
            a1 += X[(i + 1) * d + j] * v[i + 1];
            a2 += X[(i + 2) * d + j] * v[i + 2];
            a3 += X[(i + 3) * d + j] * v[i + 3];
        }
        for (; i < n; i++) a0 += X[i * d + j] * v[i];
        sums[j] += (a0 + a1) + (a2 + a3);
    }
}

/* exp(-a) for a >= 0 to about one unit in the last place: Taylor's series after a power of two is taken off. */
INLINE double exp_of_minus(double a) {
    const double rounds = 6755399441055744.0; /* 1.5 * 2^52: added and taken off, it leaves the nearest integer */
    /* What is not a number is not above 708, and stays what it is. */
    double c = a > 708.0 ? 708.0 : a, shifted = c * -1.4426950408889634 + rounds, k = shifted - rounds;
    double r = (-c - k * 0.693147180369123816490) - k * 1.90821492927058770002e-10; /* ln 2 in two parts */
    double e = 1.0 / 6227020800.0;
    e = e * r + 1.0 / 479001600.0;
    e = e * r + 1.0 / 39916800.0;
    e = e * r + 1.0 / 3628800.0;
    e = e * r + 1.0 / 362880.0;
    e = e * r + 1.0 / 40320.0;
    e = e * r + 1.0 / 5040.0;
    e = e * r + 1.0 / 720.0;
    e = e * r + 1.0 / 120.0;
    e = e * r + 1.0 / 24.0;
    e = e * r + 1.0 / 6.0;
    e = e * r + 0.5;
    e = e * r + 1.0;
    e = e * r + 1.0;
    uint64_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 1023) << 52; /* the last bits of the shifted number are k; 2^k has them in its exponent */
    double power;
    memcpy(&power, &bits, sizeof power);
    return a > 708.0 ? 0.0 : e * power;
}

/* log(1 + t) for 0 <= t <= 1: 2 atanh(f / (2 + f)), with f = t, or (1 + t) / 2 - 1 where that is nearer to zero. */
INLINE double log_of_one_plus(double t) {
    int halved = t > 0.41421356237309504;
    double f = halved ? 0.5 * (t - 1.0) : t, s = f / (2.0 + f), q = s * s;
    double l = 1.0 / 23.0;
    l = l * q + 1.0 / 21.0;
    l = l * q + 1.0 / 19.0;
    l = l * q + 1.0 / 17.0;
    l = l * q + 1.0 / 15.0;
    l = l * q + 1.0 / 13.0;
    l = l * q + 1.0 / 11.0;
    l = l * q + 1.0 / 9.0;
    l = l * q + 1.0 / 7.0;
    l = l * q + 1.0 / 5.0;
    l = l * q + 1.0 / 3.0;
    return 2.0 * s + 2.0 * s * q * l + (halved ? 0.693147180559945309417 : 0.0);
}

/* Loss, slope and the slope's size of every row; see counterpoise.losses.Logistic. */
INLINE void logistic(const double *target, const double *prediction, double *value, double *slope, double *size) {
    for (int i = 0; i < MOST_ROWS; i++) {
        double sign = 1.0 - 2.0 * target[i], z = sign * prediction[i], t = exp_of_minus(z < 0.0 ? -z : z);
        value[i] = log_of_one_plus(t) + (z > 0.0 ? z : 0.0);
        size[i] = (z < 0.0 ? t : 1.0) / (1.0 + t);
        slope[i] = sign * size[i];
    }
}

uint32_t version(void) { return VERSION; }

/* Predictions, and sums of what follows from them.

   X            features, d of each row
   owner        the row of theta that is a piece's own
   theta        coefficients, and where there is one, the intercept
   predictions  of every row, written
   sums         of weight * slope * features, and of weight * slope where there is an intercept, written
   others       of weight * loss, and of weight * |slope|, written */
FOR_EVERY_PROCESSOR
void look_logistic(const double *X, ptrdiff_t d, int with_intercept, ptrdiff_t pieces, const int64_t *place,
                   const int64_t *first, const int64_t *last, const int64_t *owner, const double *theta,
                   const double *target, const double *weight, double *predictions, double *sums, double *others) {
    ptrdiff_t width = d + with_intercept, most = CACHED_ENTRIES / (d > 0 ? d : 1);
    most = most < LEAST_ROWS ? LEAST_ROWS : most > MOST_ROWS ? MOST_ROWS : most & ~(ptrdiff_t)3;
    /* Rows that a block is short of count as rows of no weight. */
    double z[MOST_ROWS] = {0}, y[MOST_ROWS] = {0}, w[MOST_ROWS] = {0};
    double value[MOST_ROWS], slope[MOST_ROWS], size[MOST_ROWS];
    for (ptrdiff_t k = 0; k < pieces; k++) {
        const double *own = theta + owner[k] * width;
        double *out = sums + k * width, all_values = 0.0, all_sizes = 0.0, all_slopes = 0.0;
        memset(out, 0, (size_t)width * sizeof(double));
        for (int64_t begin = first[k]; begin < last[k]; begin += most) {
            ptrdiff_t n = last[k] - begin < most ? (ptrdiff_t)(last[k] - begin) : most;
            const double *x = X + (place[k] + begin - first[k]) * d;
            predict(x, n, d, own, with_intercept ? own[d] : 0.0, z);
            memcpy(predictions + begin, z, (size_t)n * sizeof(double));
            memcpy(y, target + begin, (size_t)n * sizeof(double));
            memcpy(w, weight + begin, (size_t)n * sizeof(double));
            for (ptrdiff_t i = n; i < MOST_ROWS; i++) z[i] = y[i] = w[i] = 0.0;
            logistic(y, z, value, slope, size);
            Eight values = {0}, sizes = {0}, slopes = {0};
            for (ptrdiff_t i = 0; i < MOST_ROWS; i += 8) {
                Eight weights = load(w + i), weighted = weights * load(slope + i);
                store(slope + i, weighted);
                slopes += weighted;
                values += weights * load(value + i);
                sizes += weights * load(size + i);
            }
            all_values += total(values);
            all_sizes += total(sizes);
            all_slopes += total(slopes);
            gather(x, n, d, slope, out);
        }
        if (with_intercept) out[d] = all_slopes;
        others[2 * k] = all_values;
        others[2 * k + 1] = all_sizes;
    }
}

int most_columns(void) { return MOST_COLUMNS; }

/* X' diag(weight) X of every piece, bordered by the column sums where there is an intercept.

   grams        one square matrix after the other, written

   Returns 0, or 1 where there is no memory for two of them: too much for the stack of a small thread. */
FOR_EVERY_PROCESSOR
int weighted_grams(const double *X, ptrdiff_t d, int with_intercept, ptrdiff_t pieces, const int64_t *place,
                    const int64_t *first, const int64_t *last, const double *weight, double *grams) {
    ptrdiff_t width = d + with_intercept, padded = (width + 7) & ~(ptrdiff_t)7;
    size_t square = (size_t)(width * padded) * sizeof(double);
    double rows[4][MOST_COLUMNS] = {{0}}, *upper = malloc(2 * square + 1), *block = upper + width * padded;
    if (upper == NULL) return 1;
    for (ptrdiff_t k = 0; k < pieces; k++) {
        memset(upper, 0, square);
        /* As in gather, sums of a block come first. */
        for (int64_t begin = first[k]; begin < last[k]; begin += BLOCK_ROWS) {
            int64_t end = last[k] - begin < BLOCK_ROWS ? last[k] : begin + BLOCK_ROWS;
            memset(block, 0, square);
            for (int64_t i = begin; i < end; i += 4) {
                double w[4] = {0};
                int n = end - i < 4 ? (int)(end - i) : 4;
                for (int r = 0; r < n; r++) w[r] = weight[i + r];
                /* Rows without curvature (saturated, or far from a hinge) cost nothing. */
                if (w[0] == 0.0 && w[1] == 0.0 && w[2] == 0.0 && w[3] == 0.0) continue;
                for (int r = 0; r < n; r++) {
                    memcpy(rows[r], X + (place[k] + i - first[k] + r) * d, (size_t)d * sizeof(double));
                    if (with_intercept) rows[r][d] = 1.0;
                }
                /* What earlier rows left behind may not be finite, and would not vanish with a weight of zero. */
                for (int r = n; r < 4; r++) memset(rows[r], 0, (size_t)padded * sizeof(double));
                for (ptrdiff_t a = 0; a < width; a++) {
                    double c0 = w[0] * rows[0][a], c1 = w[1] * rows[1][a];
                    double c2 = w[2] * rows[2][a], c3 = w[3] * rows[3][a];
                    double *row = block + a * padded;
                    for (ptrdiff_t b = a & ~(ptrdiff_t)7; b < padded; b += 8) {
                        Eight two = load(rows[0] + b) * c0 + load(rows[1] + b) * c1;
                        store(row + b, load(row + b) + (two + (load(rows[2] + b) * c2 + load(rows[3] + b) * c3)));
                    }
                }
            }
            for (ptrdiff_t j = 0; j < width * padded; j += 8) store(upper + j, load(upper + j) + load(block + j));
        }
        double *gram = grams + k * width * width;
        for (ptrdiff_t a = 0; a < width; a++)
            for (ptrdiff_t b = a; b < width; b++) gram[a * width + b] = gram[b * width + a] = upper[a * padded + b];
    }
    free(upper);
    return 0;
}

/* Contexts of a few rows, eight side by side: each has one entry of every vector. */

typedef int64_t Flags __attribute__((vector_size(64), aligned(8)));

/* Steps of Newton's method, and halvings of one, at the most. */
#define MOST_STEPS 100
#define MOST_HALVINGS 30

/* Change of predictions after which Newton's method has arrived: what is left is about its square. */
#define ARRIVED 1e-5

/* Loss below which nothing is left: rows of one class lead to infinity, at a slower and slower pace. */
#define NOTHING_LEFT 1e-12

/* Curvature below which a row is taken to have this much, so that nothing is divided by zero. */
#define LEAST_CURVATURE 1e-30

INLINE Eight chosen(Flags which, Eight a, Eight b) { return (Eight)((which & (Flags)a) | (~which & (Flags)b)); }

INLINE Eight absolute(Eight a) { return chosen(a < 0.0, -a, a); }

INLINE Eight root(Eight a) {
    for (int l = 0; l < 8; l++) a[l] = __builtin_sqrt(a[l]);
    return a;
}

INLINE int any(Flags which) {
    int64_t found = 0;
    for (int l = 0; l < 8; l++) found |= which[l];
    return found != 0;
}

/* Write L D L' over the lower half of symmetric matrices, the reciprocals of D on the diagonal. */
INLINE void factor(Eight *A, ptrdiff_t m) {
    for (ptrdiff_t k = 0; k < m; k++) {
        Eight over = 1.0 / A[k * m + k];
        A[k * m + k] = over;
        for (ptrdiff_t i = k + 1; i < m; i++) {
            Eight share = A[i * m + k] * over;
            for (ptrdiff_t j = k + 1; j <= i; j++) A[i * m + j] -= share * A[j * m + k];
        }
        for (ptrdiff_t i = k + 1; i < m; i++) A[i * m + k] *= over;
    }
}

/* Solve with what factor has written, in place. */
INLINE void solve(const Eight *A, ptrdiff_t m, Eight *b) {
    for (ptrdiff_t k = 0; k < m; k++)
        for (ptrdiff_t i = k + 1; i < m; i++) b[i] -= A[i * m + k] * b[k];
    for (ptrdiff_t k = 0; k < m; k++) b[k] *= A[k * m + k];
    for (ptrdiff_t k = m - 1; k > 0; k--)
        for (ptrdiff_t j = 0; j < k; j++) b[j] -= A[k * m + j] * b[k];
}

/* sums = rows u + constant, for a matrix of n rows and m columns. */
INLINE void multiply(const Eight *rows, ptrdiff_t n, ptrdiff_t m, const Eight *u, Eight constant, Eight *sums) {
    for (ptrdiff_t i = 0; i < n; i++) {
        Eight a = constant, b = {0};
        ptrdiff_t j = 0;
        for (; j + 2 <= m; j += 2) {
            a += rows[i * m + j] * u[j];
            b += rows[i * m + j + 1] * u[j + 1];
        }
        if (j < m) a += rows[i * m + j] * u[j];
        sums[i] = a + b;
    }
}

/* Coefficients of contexts of few rows that minimise the mean logistic loss with a ridge, by Newton's method.

   Of fewer rows than features the coefficients are X' u, and the system has as many equations as there are rows.
   Nothing is promised: whoever calls this looks at the gradients.

   alpha        the ridge
   weight       rows of no weight are not there
   theta        coefficients to begin at, and the constant where there is one; overwritten, by NaN where there is no end

   Returns 0, or 1 where there is no memory. */
FOR_EVERY_PROCESSOR
int minimise_logistic(const double *X, ptrdiff_t d, int with_intercept, ptrdiff_t pieces, const int64_t *place,
                      const int64_t *first, const int64_t *last, const double *alpha, const double *target,
                      const double *weight, double *theta) {
    ptrdiff_t width = d + with_intercept, most = 0;
    for (ptrdiff_t k = 0; k < pieces; k++) most = last[k] - first[k] > most ? last[k] - first[k] : most;
    most = (most + 7) & ~(ptrdiff_t)7; /* losses are worked out for eight rows of eight contexts at once */
    ptrdiff_t size = most < d ? most : d, entries = most * d + most * size + size * size + 12 * most + 8 * (d + 1);
    Eight *memory = malloc((size_t)entries * sizeof(Eight) + 1);
    if (memory == NULL) return 1;
    Eight *x = memory, *y = x + most * d, *w = y + most, *z = w + most, *K = z + most, *A = K + most * size;
    Eight *value = A + size * size, *slope = value + most, *bend = slope + most, *s = bend + most, *next = s + most;
    Eight *u = next + most, *v = u + most + d, *p = v + most + d, *q = p + most + d;
    const Eight zero = {0}, ridge = zero + alpha[0];
    for (ptrdiff_t k = 0; k < pieces; k += 8) {
        ptrdiff_t n = 0, lanes = pieces - k < 8 ? pieces - k : 8;
        memset(memory, 0, (size_t)(most * (d + 3)) * sizeof(Eight));
        memset(u, 0, (size_t)(d + 1) * sizeof(Eight));
        for (ptrdiff_t l = 0; l < lanes; l++) {
            ptrdiff_t r = 0;
            for (int64_t i = first[k + l]; i < last[k + l]; i++) {
                if (weight[i] == 0.0) continue;
                const double *row = X + (place[k + l] + i - first[k + l]) * d;
                for (ptrdiff_t j = 0; j < d; j++) x[r * d + j][l] = row[j];
                y[r][l] = target[i];
                w[r++][l] = weight[i];
            }
            n = r > n ? r : n;
            for (ptrdiff_t j = 0; j < width; j++) u[j][l] = theta[(k + l) * width + j];
        }
        int dual = n < d;
        ptrdiff_t m = dual ? n : d, rounded = (n + 7) & ~(ptrdiff_t)7;
        const Eight *rows = dual ? K : x;
        multiply(x, n, d, u, with_intercept ? u[d] : zero, z);
        if (dual)
            for (ptrdiff_t i = 0; i < n; i++)
                for (ptrdiff_t j = 0; j <= i; j++) {
                    Eight a = zero, b = zero;
                    for (ptrdiff_t c = 0; c + 2 <= d; c += 2) {
                        a += x[i * d + c] * x[j * d + c];
                        b += x[i * d + c + 1] * x[j * d + c + 1];
                    }
                    if (d & 1) a += x[i * d + d - 1] * x[j * d + d - 1];
                    K[i * n + j] = K[j * n + i] = a + b;
                }
        /* The first step leads from these predictions, and is compared with a prediction of zero. */
        Eight constant = zero, best = zero;
        for (ptrdiff_t i = 0; i < n; i++) best += w[i] * 0.693147180559945309417;
        memset(u, 0, (size_t)m * sizeof(Eight));
        Flags done = zero > zero, arrived = done;
        for (ptrdiff_t l = lanes; l < 8; l++) done[l] = -1;
        for (int step = 0; step < MOST_STEPS && any(~done); step++) {
            for (ptrdiff_t i = 0; i < rounded; i += 8)
                logistic((double *)(y + i), (double *)(z + i), (double *)(value + i), (double *)(slope + i),
                         (double *)(bend + i));
            for (ptrdiff_t i = 0; i < rounded; i++) {
                bend[i] = bend[i] * (1.0 - bend[i]);
                bend[i] = chosen(bend[i] > LEAST_CURVATURE, bend[i], zero + LEAST_CURVATURE) * w[i];
                slope[i] *= w[i];
            }
            Eight right = zero, left = zero, pulled = zero, held = zero;
            if (dual) {
                /* With S the root of the curvatures: (alpha + S K S) p = S z - slope / S, and S for the constant. */
                for (ptrdiff_t i = 0; i < n; i++) {
                    s[i] = root(bend[i]);
                    q[i] = s[i];
                    p[i] = chosen(s[i] > 0.0, s[i] * z[i] - slope[i] / chosen(s[i] > 0.0, s[i], zero + 1.0), zero);
                    for (ptrdiff_t j = 0; j <= i; j++) A[i * n + j] = s[i] * K[i * n + j] * s[j];
                    A[i * n + i] += ridge;
                }
                factor(A, n);
                solve(A, n, p);
                if (with_intercept) solve(A, n, q);
                for (ptrdiff_t i = 0; i < n; i++) {
                    right += s[i] * p[i];
                    left += s[i] * q[i];
                }
            } else {
                memset(A, 0, (size_t)(d * d) * sizeof(Eight));
                memset(p, 0, (size_t)d * sizeof(Eight));
                memset(q, 0, (size_t)d * sizeof(Eight));
                for (ptrdiff_t i = 0; i < rounded; i += 4) {
                    const Eight *x0 = x + i * d, *x1 = x0 + d, *x2 = x1 + d, *x3 = x2 + d;
                    Eight b0 = bend[i], b1 = bend[i + 1], b2 = bend[i + 2], b3 = bend[i + 3];
                    Eight r0 = b0 * z[i] - slope[i], r1 = b1 * z[i + 1] - slope[i + 1];
                    Eight r2 = b2 * z[i + 2] - slope[i + 2], r3 = b3 * z[i + 3] - slope[i + 3];
                    for (ptrdiff_t a = 0; a < d; a++) {
                        Eight c0 = b0 * x0[a], c1 = b1 * x1[a], c2 = b2 * x2[a], c3 = b3 * x3[a];
                        p[a] += (r0 * x0[a] + r1 * x1[a]) + (r2 * x2[a] + r3 * x3[a]);
                        q[a] += (c0 + c1) + (c2 + c3);
                        for (ptrdiff_t b = 0; b <= a; b++)
                            A[a * d + b] += (c0 * x0[b] + c1 * x1[b]) + (c2 * x2[b] + c3 * x3[b]);
                    }
                    pulled += (r0 + r1) + (r2 + r3);
                    held += (b0 + b1) + (b2 + b3);
                }
                for (ptrdiff_t a = 0; a < d; a++) {
                    A[a * d + a] += ridge;
                    s[a] = q[a];
                }
                factor(A, d);
                solve(A, d, p);
                if (with_intercept) solve(A, d, q);
                right = pulled;
                left = held;
                for (ptrdiff_t a = 0; a < d; a++) {
                    right -= s[a] * p[a];
                    left -= s[a] * q[a];
                }
            }
            Eight to = zero, length = chosen(done, zero, zero + 1.0);
            if (with_intercept) to = chosen(left > 0.0, right / chosen(left > 0.0, left, zero + 1.0), zero);
            for (ptrdiff_t j = 0; j < m; j++) v[j] = (p[j] - to * q[j]) * (dual ? s[j] : zero + 1.0);
            multiply(rows, n, m, v, to, next);
            if (step == 0) memset(z, 0, (size_t)n * sizeof(Eight));
            Eight far = zero;
            for (ptrdiff_t i = 0; i < n; i++) {
                Eight change = absolute(next[i] - z[i]);
                far = chosen((w[i] > 0.0) & ~(change <= far), change, far);
            }
            for (int halving = 0;; halving++) {
                Eight there = zero, squares = zero;
                for (ptrdiff_t i = 0; i < n; i++) s[i] = z[i] + length * (next[i] - z[i]);
                for (ptrdiff_t i = 0; i < rounded; i += 8)
                    logistic((double *)(y + i), (double *)(s + i), (double *)(value + i), (double *)(slope + i),
                             (double *)(bend + i));
                for (ptrdiff_t i = 0; i < n; i++) there += w[i] * value[i];
                Eight moved = constant + length * (to - constant);
                for (ptrdiff_t j = 0; j < m; j++) {
                    Eight own = u[j] + length * (v[j] - u[j]);
                    squares += own * (dual ? s[j] - moved : own);
                }
                there += 0.5 * ridge * squares;
                /* Next to the minimum sums differ by rounding. */
                Flags fell = (there <= best * (1.0 + 1e-14)) | (length == 0.0);
                if (!any(~fell) || step == 0 || halving == MOST_HALVINGS) {
                    length = chosen(fell, length, zero);
                    best = chosen(fell & (length > 0.0), there, best);
                    break;
                }
                length = chosen(fell, length, 0.5 * length);
            }
            for (ptrdiff_t j = 0; j < m; j++) u[j] += chosen(length > 0.0, length * (v[j] - u[j]), zero);
            for (ptrdiff_t i = 0; i < n; i++) z[i] += chosen(length > 0.0, length * (next[i] - z[i]), zero);
            constant += chosen(length > 0.0, length * (to - constant), zero);
            if (step == 0) continue;
            arrived |= ~done & ((far <= ARRIVED) | (best <= NOTHING_LEFT));
            /* A step that led nowhere is the last one, but for the first. */
            done |= arrived | (length == 0.0);
        }
        for (ptrdiff_t l = 0; l < lanes; l++) {
            double *own = theta + (k + l) * width;
            for (ptrdiff_t j = 0; j < d; j++) {
                double sum = dual ? 0.0 : u[j][l];
                for (ptrdiff_t i = 0; dual && i < n; i++) sum += x[i * d + j][l] * u[i][l];
                own[j] = arrived[l] ? sum : __builtin_nan("");
            }
            if (with_intercept) own[d] = arrived[l] ? constant[l] : __builtin_nan("");
        }
    }
    free(memory);
    return 0;
}

/* Invert symmetric positive definite matrices of m rows, eight at once, by sweeping; what is singular is not finite.

   inverses     the matrices; overwritten

   Returns 0, or 1 where there is no memory. */
FOR_EVERY_PROCESSOR
int invert(ptrdiff_t m, ptrdiff_t matrices, double *inverses) {
    Eight *A = malloc((size_t)(m * m + 2 * m) * sizeof(Eight) + 1), *b = A + m * m, *c = b + m;
    if (A == NULL) return 1;
    for (ptrdiff_t k = 0; k < matrices; k += 8) {
        ptrdiff_t lanes = matrices - k < 8 ? matrices - k : 8;
        double *own = inverses + k * m * m;
        memset(A, 0, (size_t)(m * m) * sizeof(Eight));
        for (ptrdiff_t l = 0; l < lanes; l++)
            for (ptrdiff_t i = 0; i < m * m; i++) A[i][l] = own[l * m * m + i];
        for (ptrdiff_t j = 0; j < m; j++) {
            Eight over = 1.0 / A[j * m + j];
            for (ptrdiff_t i = 0; i < m; i++) {
                b[i] = i < j ? A[j * m + i] : A[i * m + j];
                c[i] = b[i] * over;
            }
            b[j] = (Eight){0};
            c[j] = -over;
            for (ptrdiff_t i = 0; i < m; i++)
                for (ptrdiff_t a = 0; a <= i; a++) A[i * m + a] -= c[i] * b[a];
            for (ptrdiff_t i = 0; i < j; i++) A[j * m + i] = c[i];
            for (ptrdiff_t i = j; i < m; i++) A[i * m + j] = c[i];
        }
        for (ptrdiff_t l = 0; l < lanes; l++)
            for (ptrdiff_t i = 0; i < m; i++)
                for (ptrdiff_t a = 0; a <= i; a++)
                    own[l * m * m + i * m + a] = own[l * m * m + a * m + i] = -A[i * m + a][l];
    }
    free(A);
    return 0;
}
