// The inner loops that turn JPEG coefficients into pixels, one set for each kind of processor.
// Every set computes what libjpeg-turbo's vector code on x86 computes, to the bit and for every
// input, including the absurd values of damaged files.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fastdata {

// Factors of the inverse transform of Loeffler, Ligtenberg and Moschytz in libjpeg's variant, with
// kFactorBits after the point. Between the passes kPassBits more are kept.
inline constexpr int kFactorBits = 13, kPassBits = 2;
inline constexpr int kF0298 = 2446, kF0390 = 3196, kF0541 = 4433, kF0765 = 6270, kF0899 = 7373;
inline constexpr int kF1175 = 9633, kF1501 = 12299, kF1847 = 15137, kF1961 = 16069;
inline constexpr int kF2053 = 16819, kF2562 = 20995, kF3072 = 25172;

// Kernels may read and write this many bytes past the end of a row, so what follows an output must
// be written later or be of no use any more. Only `idct` writes no byte too many, because the
// blocks beside it may be done already.
inline constexpr int kSampleSlack = 64;

struct JpegKernels {
    // Dequantises a block of 64 coefficients in natural order and transforms it into 8 rows of 8
    // samples, `stride` bytes apart. All coefficients from number `coded` on, in zigzag order, must
    // be zero; `coded` is from 1 (DC alone) to 64.
    void (*idct)(const int16_t *block, const uint16_t *table, int coded, uint8_t *out,
                 ptrdiff_t stride);

    // The three "fancy" upsamplings give the nearer sample three times the weight. At the edges of
    // an image the caller provides neighbours, which are copies of the outermost samples.

    // Doubles the width: out[2 * i] and out[2 * i + 1] for i < count, from in[-1] to in[count].
    void (*upsample_h2)(const uint8_t *in, int count, uint8_t *out);

    // Doubles the height, a row at a time: out[i] = (3 * near[i] + far[i] + bias) >> 2 for
    // i < count; `bias` is 1 for the row above `near`, 2 for the one below.
    void (*upsample_v2)(const uint8_t *near, const uint8_t *far, int bias, int count, uint8_t *out);

    // Doubles both, a row at a time, like upsample_h2 from two rows.
    void (*upsample_h2v2)(const uint8_t *near, const uint8_t *far, int count, uint8_t *out);

    // Converts `count` pixels of YCbCr, each component in a row of its own, to interleaved RGB.
    void (*ycc_to_rgb)(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, int count,
                       uint8_t *out);
};

// The fastest set that this processor runs.
const JpegKernels &best_jpeg_kernels();

// Portable C++, for every processor.
const JpegKernels &portable_jpeg_kernels();

// Null if the processor has no AVX2.
const JpegKernels *jpeg_kernels_avx2();

// The `idct` of that set (idct_avx2.cpp).
void idct_avx2(const int16_t *block, const uint16_t *table, int coded, uint8_t *out,
               ptrdiff_t stride);

}  // namespace fastdata
