#include "base/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__aarch64__) && (defined(__linux__) || defined(__ARM_FEATURE_CRC32))
#define FASTDATA_ARM_CRC
#include <arm_acle.h>
#if !defined(__ARM_FEATURE_CRC32)
#include <sys/auxv.h>
#endif
#endif

namespace fastdata {
namespace {

// Eight bytes a step with eight tables ("slicing by 8"), for processors without the instruction.
class Tables {
  public:
    Tables() {
        for (uint32_t byte = 0; byte < 256; ++byte) {
            uint32_t crc = byte;
            for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0x82F63B78u : 0);
            tables_[0][byte] = crc;
        }
        for (size_t t = 1; t < 8; ++t) {
            for (size_t byte = 0; byte < 256; ++byte) {
                uint32_t crc = tables_[t - 1][byte];
                tables_[t][byte] = (crc >> 8) ^ tables_[0][crc & 255];
            }
        }
    }

    uint32_t extend(uint32_t crc, const uint8_t *data, size_t size) const {
        for (; size >= 8; size -= 8, data += 8) {
            uint32_t low = crc ^ (data[0] | data[1] << 8 | data[2] << 16 | uint32_t{data[3]} << 24);
            crc = tables_[7][low & 255] ^ tables_[6][low >> 8 & 255] ^ tables_[5][low >> 16 & 255] ^
                  tables_[4][low >> 24] ^ tables_[3][data[4]] ^ tables_[2][data[5]] ^
                  tables_[1][data[6]] ^ tables_[0][data[7]];
        }
        for (; size > 0; --size, ++data) crc = (crc >> 8) ^ tables_[0][(crc ^ *data) & 255];
        return crc;
    }

  private:
    std::array<std::array<uint32_t, 256>, 8> tables_;
};

uint32_t extend_portably(uint32_t crc, const uint8_t *data, size_t size) {
    static const Tables tables;
    return tables.extend(crc, data, size);
}

#if defined(__x86_64__)

// The instruction takes three cycles, but one can start every cycle, so three stretches of the data
// are worked on side by side. A table that moves a remainder over a stretch of zeros joins the
// results (Gopal et al., "Fast CRC Computation for iSCSI Polynomial", Intel 2011).
constexpr size_t kStretch = 1024;

class Shift {
  public:
    Shift() {
        uint8_t zeros[kStretch] = {};
        for (int bit = 0; bit < 32; ++bit) bits_[bit] = extend_portably(1u << bit, zeros, kStretch);
        for (int byte = 0; byte < 4; ++byte) {
            for (uint32_t value = 0; value < 256; ++value) {
                uint32_t moved = 0;
                for (int bit = 0; bit < 8; ++bit) {
                    if (value >> bit & 1) moved ^= bits_[8 * byte + bit];
                }
                table_[byte][value] = moved;
            }
        }
    }

    // What the remainder becomes after kStretch bytes of zeros.
    uint32_t operator()(uint32_t crc) const {
        return table_[0][crc & 255] ^ table_[1][crc >> 8 & 255] ^ table_[2][crc >> 16 & 255] ^
               table_[3][crc >> 24];
    }

  private:
    uint32_t bits_[32];
    uint32_t table_[4][256];
};

uint64_t word_at(const uint8_t *data) {
    uint64_t word;
    std::memcpy(&word, data, 8);
    return word;
}

__attribute__((target("sse4.2"))) uint32_t extend_sse42(uint32_t crc, const uint8_t *data,
                                                        size_t size) {
    static const Shift shift;
    for (; size >= 3 * kStretch; size -= 3 * kStretch, data += 3 * kStretch) {
        uint64_t first = crc, second = 0, third = 0;
        for (size_t at = 0; at < kStretch; at += 8) {
            first = _mm_crc32_u64(first, word_at(data + at));
            second = _mm_crc32_u64(second, word_at(data + kStretch + at));
            third = _mm_crc32_u64(third, word_at(data + 2 * kStretch + at));
        }
        crc = shift(static_cast<uint32_t>(first)) ^ static_cast<uint32_t>(second);
        crc = shift(crc) ^ static_cast<uint32_t>(third);
    }
    uint64_t wide = crc;
    for (; size >= 8; size -= 8, data += 8) wide = _mm_crc32_u64(wide, word_at(data));
    crc = static_cast<uint32_t>(wide);
    for (; size > 0; --size, ++data) crc = _mm_crc32_u8(crc, *data);
    return crc;
}

uint32_t extend(uint32_t crc, const uint8_t *data, size_t size) {
    static const bool fast = __builtin_cpu_supports("sse4.2");
    return fast ? extend_sse42(crc, data, size) : extend_portably(crc, data, size);
}

#elif defined(FASTDATA_ARM_CRC)

// Compilers target ARMv8.0 unless told otherwise, where the instruction is optional.
__attribute__((target("+crc"))) uint32_t extend_arm(uint32_t crc, const uint8_t *data,
                                                    size_t size) {
    for (; size >= 8; size -= 8, data += 8) {
        uint64_t word;
        std::memcpy(&word, data, 8);
        crc = __crc32cd(crc, word);
    }
    for (; size > 0; --size, ++data) crc = __crc32cb(crc, *data);
    return crc;
}

uint32_t extend(uint32_t crc, const uint8_t *data, size_t size) {
#if defined(__ARM_FEATURE_CRC32)
    constexpr bool fast = true;
#else
    static const bool fast = getauxval(AT_HWCAP) & HWCAP_CRC32;
#endif
    return fast ? extend_arm(crc, data, size) : extend_portably(crc, data, size);
}

#else

uint32_t extend(uint32_t crc, const uint8_t *data, size_t size) {
    return extend_portably(crc, data, size);
}

#endif

}  // namespace

uint32_t crc32c(const uint8_t *data, size_t size) { return ~extend(~0u, data, size); }

}  // namespace fastdata
