// What all AVX2 code shares. Only functions marked FASTDATA_AVX2 use these instructions, so that
// the rest of the core runs on any x86-64, and this file is only for what is compiled there.
#pragma once

#include <cstdint>

#include <immintrin.h>

#define FASTDATA_AVX2 __attribute__((target("avx2")))

namespace fastdata {

FASTDATA_AVX2 inline __m128i load128(const void *from) {
    return _mm_loadu_si128(static_cast<const __m128i *>(from));
}

FASTDATA_AVX2 inline __m256i load256(const void *from) {
    return _mm256_loadu_si256(static_cast<const __m256i *>(from));
}

FASTDATA_AVX2 inline void store128(void *to, __m128i value) {
    _mm_storeu_si128(static_cast<__m128i *>(to), value);
}

FASTDATA_AVX2 inline void store256(void *to, __m256i value) {
    _mm256_storeu_si256(static_cast<__m256i *>(to), value);
}

// Two 16-bit factors for vpmaddwd, as one number.
constexpr int32_t factor_pair(int first, int second) {
    return static_cast<int32_t>(static_cast<uint32_t>(second) << 16 |
                                static_cast<uint16_t>(first));
}

// Multiplies pairs of 16-bit values by a pair of factors, and adds the two products.
FASTDATA_AVX2 inline __m256i times(__m256i pairs, int first, int second) {
    return _mm256_madd_epi16(pairs, _mm256_set1_epi32(factor_pair(first, second)));
}

}  // namespace fastdata
