// The inverse transform of the AVX2 kernels.

#include "jpeg/kernels.h"

#if defined(__x86_64__)
#include <cstring>

#include "base/avx2.h"

namespace fastdata {
namespace {

inline uint64_t load64(const int16_t *from) {
    uint64_t value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

constexpr int kOne = 1 << kFactorBits;

// How many bits the passes round off: all but two of those after the point, then all of them and
// three more, since the two passes make everything 8 times too large.
constexpr int kShift1 = 11, kShift2 = 18;

// As `times`, with factors of its own for each half of the register.
FASTDATA_AVX2 inline __m256i times2(__m256i pairs, int32_t low, int32_t high) {
    return _mm256_madd_epi16(pairs,
                             _mm256_setr_epi32(low, low, low, low, high, high, high, high));
}

// One pass works on pairs of inputs, side by side for 8 columns (or rows): 0 and 4, 2 and 6, 7 and
// 1, 3 and 5. Pairs are what vpmaddwd wants, and these pairs also give the sums that the transform
// needs of 7 and 3, and of 1 and 5. Every sum of inputs wraps at 16 bits.
struct Pairs {
    __m256i p04, p26, p71, p35;
};

// Eight outputs, each for 8 columns, still of 32 bits.
struct Sums {
    __m256i s[8];
};

template <int kShift>
FASTDATA_AVX2 inline Sums transform(const Pairs &in) {
    const __m256i half = _mm256_set1_epi32(1 << (kShift - 1));
    const __m256i in0 = _mm256_slli_epi32(in.p04, 16);
    const __m256i sum = times(_mm256_add_epi16(in0, in.p04), 0, kOne);
    const __m256i difference = times(_mm256_sub_epi16(in0, in.p04), 0, kOne);
    const __m256i sum_half = _mm256_add_epi32(sum, half);
    const __m256i difference_half = _mm256_add_epi32(difference, half);
    const __m256i three = times(in.p26, kF0541 + kF0765, kF0541);
    const __m256i two = times(in.p26, kF0541, kF0541 - kF1847);
    const __m256i even0 = _mm256_add_epi32(sum_half, three);
    const __m256i even3 = _mm256_sub_epi32(sum_half, three);
    const __m256i even1 = _mm256_add_epi32(difference_half, two);
    const __m256i even2 = _mm256_sub_epi32(difference_half, two);

    const __m256i z = _mm256_add_epi16(in.p71, in.p35);
    const __m256i z3 = times(z, kF1175 - kF1961, kF1175);
    const __m256i z4 = times(z, kF1175, kF1175 - kF0390);
    const __m256i odd0 = _mm256_add_epi32(times(in.p71, -kF0899, kF1501 - kF0899), z4);
    const __m256i odd1 = _mm256_add_epi32(times(in.p35, kF3072 - kF2562, -kF2562), z3);
    const __m256i odd2 = _mm256_add_epi32(times(in.p35, -kF2562, kF2053 - kF2562), z4);
    const __m256i odd3 = _mm256_add_epi32(times(in.p71, kF0298 - kF0899, -kF0899), z3);

    return {{_mm256_srai_epi32(_mm256_add_epi32(even0, odd0), kShift),
             _mm256_srai_epi32(_mm256_add_epi32(even1, odd1), kShift),
             _mm256_srai_epi32(_mm256_add_epi32(even2, odd2), kShift),
             _mm256_srai_epi32(_mm256_add_epi32(even3, odd3), kShift),
             _mm256_srai_epi32(_mm256_sub_epi32(even3, odd3), kShift),
             _mm256_srai_epi32(_mm256_sub_epi32(even2, odd2), kShift),
             _mm256_srai_epi32(_mm256_sub_epi32(even1, odd1), kShift),
             _mm256_srai_epi32(_mm256_sub_epi32(even0, odd0), kShift)}};
}

// The order of columns that makes pass 1 leave them as adjacent pairs for pass 2.
FASTDATA_AVX2 inline __m128i pair_order() {
    return _mm_setr_epi8(0, 1, 8, 9, 4, 5, 12, 13, 14, 15, 2, 3, 6, 7, 10, 11);
}

FASTDATA_AVX2 inline __m256i two_rows(const int16_t *block, const uint16_t *table) {
    return _mm256_mullo_epi16(load256(block), load256(table));
}

// _mm256_shuffle_ps for integers.
template <int kSelect>
FASTDATA_AVX2 inline __m256i select(__m256i a, __m256i b) {
    return _mm256_castps_si256(
        _mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), kSelect));
}

FASTDATA_AVX2 inline void store_two(__m128i rows, uint8_t *first, uint8_t *second) {
    _mm_storel_epi64(reinterpret_cast<__m128i *>(first), rows);
    _mm_storeh_pi(reinterpret_cast<__m64 *>(second), _mm_castsi128_ps(rows));
}

// The sums of pass 2 as saturated bytes. With kSigned, 128 is still to be added. Each half of `low`
// gets the first two rows of that half, `high` the others.
template <bool kSigned>
FASTDATA_AVX2 inline void to_rows(const Sums &out, __m256i &low, __m256i &high) {
    const __m256i even_low = _mm256_packs_epi32(out.s[0], out.s[2]);
    const __m256i even_high = _mm256_packs_epi32(out.s[4], out.s[6]);
    const __m256i odd_low = _mm256_packs_epi32(out.s[1], out.s[3]);
    const __m256i odd_high = _mm256_packs_epi32(out.s[5], out.s[7]);
    __m256i even, odd;
    if (kSigned) {
        const __m256i raise = _mm256_set1_epi8(-128);
        even = _mm256_xor_si256(_mm256_packs_epi16(even_low, even_high), raise);
        odd = _mm256_xor_si256(_mm256_packs_epi16(odd_low, odd_high), raise);
    } else {
        even = _mm256_packus_epi16(even_low, even_high);
        odd = _mm256_packus_epi16(odd_low, odd_high);
    }
    const __m256i by_row = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    even = _mm256_shuffle_epi8(even, by_row);
    odd = _mm256_shuffle_epi8(odd, by_row);
    low = _mm256_unpacklo_epi8(even, odd);
    high = _mm256_unpackhi_epi8(even, odd);
}

// Pass 2, from the pairs of rows 0 to 7.
FASTDATA_AVX2 inline void finish(const Pairs &in, uint8_t *out, ptrdiff_t stride) {
    __m256i low, high;
    to_rows<true>(transform<kShift2>(in), low, high);
    uint8_t *lower = out + 4 * stride;
    store_two(_mm256_castsi256_si128(low), out, out + stride);
    store_two(_mm256_castsi256_si128(high), out + 2 * stride, out + 3 * stride);
    store_two(_mm256_extracti128_si256(low, 1), lower, lower + stride);
    store_two(_mm256_extracti128_si256(high, 1), lower + 2 * stride, lower + 3 * stride);
}

// For blocks with coefficients in the first row only. libjpeg-turbo skips pass 1 for them, so that
// values that are too large wrap instead of saturating: this is more than a shortcut.
FASTDATA_AVX2 void idct_first_row(const int16_t *block, const uint16_t *table, uint8_t *out,
                                  ptrdiff_t stride) {
    const __m128i row = _mm_mullo_epi16(load128(block),
                                        load128(table));
    const __m128i pairs = _mm_shuffle_epi8(_mm_slli_epi16(row, 2), pair_order());
    finish({_mm256_broadcastd_epi32(pairs), _mm256_broadcastd_epi32(_mm_srli_si128(pairs, 4)),
            _mm256_broadcastd_epi32(_mm_srli_si128(pairs, 8)),
            _mm256_broadcastd_epi32(_mm_srli_si128(pairs, 12))},
           out, stride);
}

FASTDATA_AVX2 inline bool only_first_row(const int16_t *block) {
    // This much says no for nearly all blocks.
    if (load64(block + 8) | load64(block + 16)) return false;
    const __m128i row1 = load128(block + 8);
    const __m256i rows = _mm256_or_si256(
        _mm256_or_si256(load256(block + 16), load256(block + 32)), load256(block + 48));
    const __m256i all = _mm256_or_si256(rows, _mm256_zextsi128_si256(row1));
    return _mm256_testz_si256(all, all);
}

FASTDATA_AVX2 void idct_full(const int16_t *block, const uint16_t *table, uint8_t *out,
                             ptrdiff_t stride) {
    if (only_first_row(block)) return idct_first_row(block, table, out, stride);
    const __m256i order = _mm256_broadcastsi128_si256(pair_order());
    const __m256i in01 = _mm256_shuffle_epi8(two_rows(block, table), order);
    const __m256i in23 = _mm256_shuffle_epi8(two_rows(block + 16, table + 16), order);
    const __m256i in45 = _mm256_shuffle_epi8(two_rows(block + 32, table + 32), order);
    const __m256i in67 = _mm256_shuffle_epi8(two_rows(block + 48, table + 48), order);
    const __m256i in07 = _mm256_blend_epi32(in01, in67, 0xF0);
    const __m256i in41 = _mm256_blend_epi32(in45, in01, 0xF0);
    const __m256i in65 = _mm256_blend_epi32(in67, in45, 0xF0);
    const __m256i low04_71 = _mm256_unpacklo_epi16(in07, in41);
    const __m256i high04_71 = _mm256_unpackhi_epi16(in07, in41);
    const __m256i low26_35 = _mm256_unpacklo_epi16(in23, in65);
    const __m256i high26_35 = _mm256_unpackhi_epi16(in23, in65);
    const Sums rows = transform<kShift1>({_mm256_permute2x128_si256(low04_71, high04_71, 0x20),
                                          _mm256_permute2x128_si256(low26_35, high26_35, 0x20),
                                          _mm256_permute2x128_si256(low04_71, high04_71, 0x31),
                                          _mm256_permute2x128_si256(low26_35, high26_35, 0x31)});

    // A row is now 04 26 in the lower half of its register, 71 35 in the upper half.
    const __m256i row01 = _mm256_packs_epi32(rows.s[0], rows.s[1]);
    const __m256i row23 = _mm256_packs_epi32(rows.s[2], rows.s[3]);
    const __m256i row45 = _mm256_packs_epi32(rows.s[4], rows.s[5]);
    const __m256i row67 = _mm256_packs_epi32(rows.s[6], rows.s[7]);
    const __m256i above04_71 = select<0x88>(row01, row23), above26_35 = select<0xDD>(row01, row23);
    const __m256i below04_71 = select<0x88>(row45, row67), below26_35 = select<0xDD>(row45, row67);
    finish({_mm256_permute2x128_si256(above04_71, below04_71, 0x20),
            _mm256_permute2x128_si256(above26_35, below26_35, 0x20),
            _mm256_permute2x128_si256(above04_71, below04_71, 0x31),
            _mm256_permute2x128_si256(above26_35, below26_35, 0x31)},
           out, stride);
}

// With inputs 0 to 3 alone there is no sum of inputs that could wrap: each output is the sum of two
// products of the pair 0 and 2, and of two products of the pair 1 and 3.
constexpr int32_t kEven0 = factor_pair(kOne, kF0541 + kF0765), kEven1 = factor_pair(kOne, kF0541);
constexpr int32_t kEven2 = factor_pair(kOne, -kF0541), kEven3 = factor_pair(kOne, -kF0541 - kF0765);
constexpr int32_t kOdd0 = factor_pair(kF1501 - kF0899 + kF1175 - kF0390, kF1175);
constexpr int32_t kOdd1 = factor_pair(kF1175, kF3072 - kF2562 + kF1175 - kF1961);
constexpr int32_t kOdd2 = factor_pair(kF1175 - kF0390, kF1175 - kF2562);
constexpr int32_t kOdd3 = factor_pair(kF1175 - kF0899, kF1175 - kF1961);

// The first 10 coefficients in zigzag order lie in the corner of 4 x 4.
constexpr int kCornerCoded = 10;

FASTDATA_AVX2 void idct_corner(const int16_t *block, const uint16_t *table, uint8_t *out,
                               ptrdiff_t stride) {
    if (!(load64(block + 8) | load64(block + 16) | load64(block + 24))) {
        return idct_first_row(block, table, out, stride);
    }
    const __m256i in01 = two_rows(block, table), in23 = two_rows(block + 16, table + 16);
    // Rows 0 and 2 in the lower half, 1 and 3 in the upper; columns 0, 2, 1, 3.
    const __m256i in02_13 = _mm256_shuffle_epi32(_mm256_unpacklo_epi16(in01, in23), 0xD8);
    const __m256i in02 = _mm256_permute4x64_epi64(in02_13, 0x44);
    const __m256i in13 = _mm256_permute4x64_epi64(in02_13, 0xEE);
    const __m256i half = _mm256_set1_epi32(1 << (kShift1 - 1));
    const __m256i even01 = _mm256_add_epi32(times2(in02, kEven0, kEven1), half);
    const __m256i even32 = _mm256_add_epi32(times2(in02, kEven3, kEven2), half);
    const __m256i odd01 = times2(in13, kOdd0, kOdd1), odd32 = times2(in13, kOdd3, kOdd2);
    const __m256i sum01 = _mm256_srai_epi32(_mm256_add_epi32(even01, odd01), kShift1);
    const __m256i sum32 = _mm256_srai_epi32(_mm256_add_epi32(even32, odd32), kShift1);
    const __m256i sum45 = _mm256_srai_epi32(_mm256_sub_epi32(even32, odd32), kShift1);
    const __m256i sum76 = _mm256_srai_epi32(_mm256_sub_epi32(even01, odd01), kShift1);
    const __m256i row03_12 = _mm256_packs_epi32(sum01, sum32);
    const __m256i row74_65 = _mm256_packs_epi32(sum76, sum45);

    // Pairs of rows 0, 3, 7, 4 and 1, 2, 6, 5. The 128 is added with the half; there is room for
    // it.
    const __m256i row02 = select<0x88>(row03_12, row74_65);
    const __m256i row13 = select<0xDD>(row03_12, row74_65);
    const __m256i raise = _mm256_set1_epi32((128 << kShift2) + (1 << (kShift2 - 1)));
    const __m256i even0 =
        _mm256_add_epi32(_mm256_madd_epi16(row02, _mm256_set1_epi32(kEven0)), raise);
    const __m256i even1 =
        _mm256_add_epi32(_mm256_madd_epi16(row02, _mm256_set1_epi32(kEven1)), raise);
    const __m256i even2 =
        _mm256_add_epi32(_mm256_madd_epi16(row02, _mm256_set1_epi32(kEven2)), raise);
    const __m256i even3 =
        _mm256_add_epi32(_mm256_madd_epi16(row02, _mm256_set1_epi32(kEven3)), raise);
    const __m256i odd0 = _mm256_madd_epi16(row13, _mm256_set1_epi32(kOdd0));
    const __m256i odd1 = _mm256_madd_epi16(row13, _mm256_set1_epi32(kOdd1));
    const __m256i odd2 = _mm256_madd_epi16(row13, _mm256_set1_epi32(kOdd2));
    const __m256i odd3 = _mm256_madd_epi16(row13, _mm256_set1_epi32(kOdd3));
    __m256i low, high;
    to_rows<false>({{_mm256_srai_epi32(_mm256_add_epi32(even0, odd0), kShift2),
                     _mm256_srai_epi32(_mm256_add_epi32(even1, odd1), kShift2),
                     _mm256_srai_epi32(_mm256_add_epi32(even2, odd2), kShift2),
                     _mm256_srai_epi32(_mm256_add_epi32(even3, odd3), kShift2),
                     _mm256_srai_epi32(_mm256_sub_epi32(even3, odd3), kShift2),
                     _mm256_srai_epi32(_mm256_sub_epi32(even2, odd2), kShift2),
                     _mm256_srai_epi32(_mm256_sub_epi32(even1, odd1), kShift2),
                     _mm256_srai_epi32(_mm256_sub_epi32(even0, odd0), kShift2)}},
                   low, high);
    uint8_t *lower = out + 4 * stride;
    store_two(_mm256_castsi256_si128(low), out, out + 3 * stride);
    store_two(_mm256_castsi256_si128(high), lower + 3 * stride, lower);
    store_two(_mm256_extracti128_si256(low, 1), out + stride, out + 2 * stride);
    store_two(_mm256_extracti128_si256(high, 1), lower + 2 * stride, lower + stride);
}

}  // namespace

FASTDATA_AVX2 void idct_avx2(const int16_t *block, const uint16_t *table, int coded, uint8_t *out,
                             ptrdiff_t stride) {
    if (coded > kCornerCoded) return idct_full(block, table, out, stride);
    if (coded > 1) return idct_corner(block, table, out, stride);
    // What idct_first_row gives for a single coefficient.
    const auto value =
        static_cast<int16_t>(static_cast<uint16_t>(static_cast<uint32_t>(block[0]) * table[0] * 4));
    int sample = ((value + 16) >> 5) + 128;
    sample = sample < 0 ? 0 : sample > 255 ? 255 : sample;
    const uint64_t row = static_cast<uint64_t>(sample) * 0x0101010101010101;
    for (int i = 0; i < 8; ++i, out += stride) std::memcpy(out, &row, sizeof row);
}

}  // namespace fastdata

#endif
