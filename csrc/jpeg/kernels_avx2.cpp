// The AVX2 kernels but for the inverse transform.

#include "jpeg/kernels.h"

#if defined(__x86_64__)
#include "base/avx2.h"

namespace fastdata {
namespace {

// (3 * a + b + 2) >> 2 is the average of a and of the average of a and b, where the inner average
// is rounded down and the outer one up; (3 * a + b + 1) >> 2 is the same with the roundings
// swapped. vpavgb rounds up, which is one more than rounding down wherever the two differ in the
// last bit.
FASTDATA_AVX2 inline __m256i average_down(__m256i a, __m256i b) {
    const __m256i uneven = _mm256_and_si256(_mm256_xor_si256(a, b), _mm256_set1_epi8(1));
    return _mm256_sub_epi8(_mm256_avg_epu8(a, b), uneven);
}

FASTDATA_AVX2 inline __m256i blend_bias1(__m256i near, __m256i far) {
    return average_down(near, _mm256_avg_epu8(near, far));
}

FASTDATA_AVX2 inline __m256i blend_bias2(__m256i near, __m256i far) {
    return _mm256_avg_epu8(near, average_down(near, far));
}

// Stores 64 bytes: `low` holds 0-15 and 32-47, `high` the others.
FASTDATA_AVX2 inline void store_halves(uint8_t *out, __m256i low, __m256i high) {
    store256(out, _mm256_permute2x128_si256(low, high, 0x20));
    store256(out + 32, _mm256_permute2x128_si256(low, high, 0x31));
}

FASTDATA_AVX2 void upsample_h2(const uint8_t *in, int count, uint8_t *out) {
    for (int i = 0; i < count; i += 32, in += 32, out += 64) {
        const __m256i here = load256(in);
        const __m256i even = blend_bias1(here, load256(in - 1));
        const __m256i odd = blend_bias2(here, load256(in + 1));
        store_halves(out, _mm256_unpacklo_epi8(even, odd), _mm256_unpackhi_epi8(even, odd));
    }
}

FASTDATA_AVX2 void upsample_v2(const uint8_t *near, const uint8_t *far, int bias, int count,
                               uint8_t *out) {
    if (bias == 1) {
        for (int i = 0; i < count; i += 32) {
            store256(out + i, blend_bias1(load256(near + i), load256(far + i)));
        }
    } else {
        for (int i = 0; i < count; i += 32) {
            store256(out + i, blend_bias2(load256(near + i), load256(far + i)));
        }
    }
}

// Values 0-7 and 16-23 of 3 * near + far, and the others.
FASTDATA_AVX2 inline void add_rows(const uint8_t *near, const uint8_t *far, __m256i &low,
                                   __m256i &high) {
    const __m256i weights = _mm256_set1_epi16(0x0103);
    const __m256i a = load256(near), b = load256(far);
    low = _mm256_maddubs_epi16(_mm256_unpacklo_epi8(a, b), weights);
    high = _mm256_maddubs_epi16(_mm256_unpackhi_epi8(a, b), weights);
}

// 16 values of upsample_h2v2 from 8 columns in each half of the registers.
FASTDATA_AVX2 inline __m256i double_width(__m256i before, __m256i here, __m256i after) {
    const __m256i three = _mm256_add_epi16(here, _mm256_add_epi16(here, here));
    const __m256i seven = _mm256_add_epi16(three, _mm256_set1_epi16(7));
    const __m256i eight = _mm256_add_epi16(three, _mm256_set1_epi16(8));
    const __m256i even = _mm256_srli_epi16(_mm256_add_epi16(eight, before), 4);
    // A sum of 12 bits, shifted so that the result is the upper byte.
    const __m256i odd = _mm256_slli_epi16(_mm256_add_epi16(seven, after), 4);
    return _mm256_blendv_epi8(odd, even, _mm256_set1_epi16(0xFF));
}

FASTDATA_AVX2 void upsample_h2v2(const uint8_t *near, const uint8_t *far, int count, uint8_t *out) {
    for (int i = 0; i < count; i += 32, near += 32, far += 32, out += 64) {
        __m256i before_low, before_high, low, high, after_low, after_high;
        add_rows(near - 1, far - 1, before_low, before_high);
        add_rows(near, far, low, high);
        add_rows(near + 1, far + 1, after_low, after_high);
        store_halves(out, double_width(before_low, low, after_low),
                     double_width(before_high, high, after_high));
    }
}

// Red, green and blue of 8 pixels in each half of the registers, before saturation.
struct Colours {
    __m256i red, green, blue;
};

FASTDATA_AVX2 inline Colours colours(__m256i y, __m256i cb, __m256i cr) {
    const __m256i centre = _mm256_set1_epi16(128);
    cb = _mm256_sub_epi16(cb, centre);
    cr = _mm256_sub_epi16(cr, centre);
    // 1.402 = 1 + 0.402 and 1.772 = 2 - 0.228: the fractions fit 16 bits, and vpmulhrsw, which
    // rounds after 15 bits, gives for all 256 values what libjpeg gets with 16.
    const __m256i red = _mm256_mulhrs_epi16(cr, _mm256_set1_epi16(13173));
    const __m256i blue = _mm256_mulhrs_epi16(cb, _mm256_set1_epi16(-7471));
    // 0.71414 = 1 - 0.28586. Green is rounded as a whole, so it takes 32 bits.
    const __m256i half = _mm256_set1_epi32(1 << 15);
    const __m256i low = times(_mm256_unpacklo_epi16(cb, cr), -22554, 65536 - 46802);
    const __m256i high = times(_mm256_unpackhi_epi16(cb, cr), -22554, 65536 - 46802);
    const __m256i green =
        _mm256_packs_epi32(_mm256_srai_epi32(_mm256_add_epi32(low, half), 16),
                           _mm256_srai_epi32(_mm256_add_epi32(high, half), 16));
    return {_mm256_add_epi16(_mm256_add_epi16(y, cr), red),
            _mm256_add_epi16(_mm256_sub_epi16(y, cr), green),
            _mm256_add_epi16(_mm256_add_epi16(y, blue), _mm256_add_epi16(cb, cb))};
}

FASTDATA_AVX2 void ycc_to_rgb(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, int count,
                              uint8_t *out) {
    // 16 pixels take 48 bytes, in which red i is byte 3 * i, and so on. Each order moves the values
    // of a colour to their places within whichever 16 of the 48 bytes they go to.
    const __m256i red_order = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 11, 6, 1, 12, 7, 2, 13, 8, 3, 14, 9, 4, 15, 10, 5));
    const __m256i green_order = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(5, 0, 11, 6, 1, 12, 7, 2, 13, 8, 3, 14, 9, 4, 15, 10));
    const __m256i blue_order = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(10, 5, 0, 11, 6, 1, 12, 7, 2, 13, 8, 3, 14, 9, 4, 15));
    // Every third byte, from byte 0, 1 or 2 on.
    const __m256i third0 = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(-1, 0, 0, -1, 0, 0, -1, 0, 0, -1, 0, 0, -1, 0, 0, -1));
    const __m256i third1 = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, -1, 0, 0, -1, 0, 0, -1, 0, 0, -1, 0, 0, -1, 0, 0));
    const __m256i third2 = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 0, -1, 0, 0, -1, 0, 0, -1, 0, 0, -1, 0, 0, -1, 0));
    const __m256i zero = _mm256_setzero_si256();
    for (int i = 0; i < count; i += 32, out += 96) {
        const __m256i in_y = load256(y + i), in_cb = load256(cb + i), in_cr = load256(cr + i);
        const Colours low =
            colours(_mm256_unpacklo_epi8(in_y, zero), _mm256_unpacklo_epi8(in_cb, zero),
                    _mm256_unpacklo_epi8(in_cr, zero));
        const Colours high =
            colours(_mm256_unpackhi_epi8(in_y, zero), _mm256_unpackhi_epi8(in_cb, zero),
                    _mm256_unpackhi_epi8(in_cr, zero));
        const __m256i red =
            _mm256_shuffle_epi8(_mm256_packus_epi16(low.red, high.red), red_order);
        const __m256i green =
            _mm256_shuffle_epi8(_mm256_packus_epi16(low.green, high.green), green_order);
        const __m256i blue =
            _mm256_shuffle_epi8(_mm256_packus_epi16(low.blue, high.blue), blue_order);
        const __m256i first =
            _mm256_blendv_epi8(_mm256_blendv_epi8(red, green, third1), blue, third2);
        const __m256i second =
            _mm256_blendv_epi8(_mm256_blendv_epi8(red, green, third0), blue, third1);
        const __m256i third =
            _mm256_blendv_epi8(_mm256_blendv_epi8(red, green, third2), blue, third0);
        // Skips stores without a pixel to keep: the last one could reach beyond the slack.
        store256(out, _mm256_permute2x128_si256(first, second, 0x20));
        if (count - i > 10) store256(out + 32, _mm256_blend_epi32(third, first, 0xF0));
        if (count - i > 21) store256(out + 64, _mm256_permute2x128_si256(second, third, 0x31));
    }
}

constexpr JpegKernels kAvx2{idct_avx2, upsample_h2, upsample_v2, upsample_h2v2, ycc_to_rgb};

}  // namespace

const JpegKernels *jpeg_kernels_avx2() {
    return __builtin_cpu_supports("avx2") ? &kAvx2 : nullptr;
}

}  // namespace fastdata

#else

namespace fastdata {

const JpegKernels *jpeg_kernels_avx2() { return nullptr; }

}  // namespace fastdata

#endif
