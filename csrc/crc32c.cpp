#include "crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#endif

namespace fastdata {
namespace {

// Eight bytes a step by eight tables ("slicing by 8"), for CPUs without the instruction.
class Tables {
  public:
    Tables() {
        for (uint32_t byte = 0; byte < 256; byte++) {
            uint32_t crc = byte;
            for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (crc & 1 ? 0x82F63B78u : 0);
            tables_[0][byte] = crc;
        }
        for (size_t t = 1; t < 8; t++) {
            for (size_t byte = 0; byte < 256; byte++) {
                uint32_t crc = tables_[t - 1][byte];
                tables_[t][byte] = (crc >> 8) ^ tables_[0][crc & 255];
            }
        }
    }

    uint32_t extend(uint32_t crc, const uint8_t *data, size_t size) const {
        for (; size >= 8; size -= 8, data += 8) {
            uint32_t low = crc ^ (data[0] | data[1] << 8 | data[2] << 16 | uint32_t(data[3]) << 24);
            crc = tables_[7][low & 255] ^ tables_[6][low >> 8 & 255] ^ tables_[5][low >> 16 & 255] ^
                  tables_[4][low >> 24] ^ tables_[3][data[4]] ^ tables_[2][data[5]] ^
                  tables_[1][data[6]] ^ tables_[0][data[7]];
        }
        for (; size > 0; size--, data++) crc = (crc >> 8) ^ tables_[0][(crc ^ *data) & 255];
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

__attribute__((target("sse4.2"))) uint32_t extend_sse42(uint32_t crc, const uint8_t *data,
                                                        size_t size) {
    uint64_t wide = crc;
    for (; size >= 8; size -= 8, data += 8) {
        uint64_t word;
        std::memcpy(&word, data, 8);
        wide = _mm_crc32_u64(wide, word);
    }
    crc = uint32_t(wide);
    for (; size > 0; size--, data++) crc = _mm_crc32_u8(crc, *data);
    return crc;
}

uint32_t extend(uint32_t crc, const uint8_t *data, size_t size) {
    static const bool fast = __builtin_cpu_supports("sse4.2");
    return fast ? extend_sse42(crc, data, size) : extend_portably(crc, data, size);
}

#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)

uint32_t extend(uint32_t crc, const uint8_t *data, size_t size) {
    for (; size >= 8; size -= 8, data += 8) {
        uint64_t word;
        std::memcpy(&word, data, 8);
        crc = __crc32cd(crc, word);
    }
    for (; size > 0; size--, data++) crc = __crc32cb(crc, *data);
    return crc;
}

#else

uint32_t extend(uint32_t crc, const uint8_t *data, size_t size) {
    return extend_portably(crc, data, size);
}

#endif

}  // namespace

uint32_t crc32c(const uint8_t *data, size_t size) { return ~extend(~0u, data, size); }

}  // namespace fastdata
