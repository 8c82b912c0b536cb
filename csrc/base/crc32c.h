// CRC-32C (Castagnoli), the checksum of samples: RFC 3720, appendix B.4.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fastdata {

uint32_t crc32c(const uint8_t *data, size_t size);

}  // namespace fastdata
