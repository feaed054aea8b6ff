/* Sums over rows in memory, with X read once: what one look at them tells, and weighted Gram matrices.

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
