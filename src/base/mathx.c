#include "base/mathx.h"

// pi/2 in three parts; the first two have 33 significant bits, so k * part is exact for |k| < 2^20 and the error of the
// reduced angle stays below 2^-60 there; for larger k (angles beyond 1.6 million) it grows to 2^-50.
static const double PIO2_1 = 0x1.921fb544p+0, PIO2_2 = 0x1.0b4611a6p-34, PIO2_3 = 0x1.3198a2e037073p-69;

static double sin_poly(double r) {
    double z = r * r;
    double p = -1.0 / 1307674368000.0; // 1/15!
    p = p * z + 1.0 / 6227020800.0;
    p = p * z - 1.0 / 39916800.0;
    p = p * z + 1.0 / 362880.0;
    p = p * z - 1.0 / 5040.0;
    p = p * z + 1.0 / 120.0;
    p = p * z - 1.0 / 6.0;
    return r + r * (z * p);
}

static double cos_poly(double r) {
    double z = r * r;
    double p = 1.0 / 20922789888000.0; // 1/16!
    p = p * z - 1.0 / 87178291200.0;
    p = p * z + 1.0 / 479001600.0;
    p = p * z - 1.0 / 3628800.0;
    p = p * z + 1.0 / 40320.0;
    p = p * z - 1.0 / 720.0;
    p = p * z + 1.0 / 24.0;
    p = p * z - 0.5;
    return 1.0 + z * p;
}

void md_sincosf(float angle, float *sine, float *cosine) {
    double x = (double)angle;
    double k = rint(x * 0.63661977236758134308); // 2/pi
    double r = ((x - k * PIO2_1) - k * PIO2_2) - k * PIO2_3;
    double s = sin_poly(r), c = cos_poly(r);
    switch ((int64_t)k & 3) {
    case 0: *sine = (float)s, *cosine = (float)c; break;
    case 1: *sine = (float)c, *cosine = (float)-s; break;
    case 2: *sine = (float)-s, *cosine = (float)-c; break;
    default: *sine = (float)-c, *cosine = (float)s; break;
    }
}

// x = m * 2^e with m in [0.7, 1.42), then 2 artanh((m-1)/(m+1)) as a series.
double md_ln(double x) {
    int e;
    double m = frexp(x, &e);
    if (m < 0.70710678118654752440) {
        m *= 2;
        e--;
    }
    double t = (m - 1) / (m + 1), z = t * t, sum = 0;
    for (int k = 27; k >= 1; k -= 2) sum = sum * z + 1.0 / k;
    return 2 * t * sum + e * 0.69314718055994530942;
}

double md_exp(double x) {
    double n = rint(x * 1.44269504088896340736);
    double r = (x - n * 0x1.62e42feep-1) - n * 0x1.a39ef35793c76p-33; // ln 2 in two parts
    double p = 1;
    for (int k = 18; k >= 1; k--) p = 1 + p * r / k;
    return ldexp(p, (int)n);
}

double md_pow_neg(double base, double num, double den) { return md_exp(-md_ln(base) * (num / den)); }
