// Tables for the Huffman codes of sequential JPEGs.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fastdata {

class HuffmanLookup {
  public:
    static constexpr int kBits = 11;

    // From a DHT segment's counts of codes by length (counts[1] to counts[16]) and symbols in the
    // order of their codes. False where they make no prefix code, or no sizes for DC. Quick where
    // the table is the one of the call before, as that of many an image is.
    bool build(const uint8_t *counts, const uint8_t *symbols, bool is_dc);

    // By the next kBits bits; bits.h says what an entry holds.
    const uint32_t *entries() const { return entry_; }

    // The entry of a code of more than kBits at the top of 16 bits.
    uint32_t find_long(uint32_t pattern) const;

  private:
    bool is_same(const uint8_t *counts, const uint8_t *symbols, bool is_dc) const;

    bool built_ = false;
    bool is_dc_ = false;
    uint8_t count_[17];
    uint8_t symbol_[256];
    uint32_t entry_[1 << kBits];
    uint32_t limit_[18];   // first 16-bit pattern beyond the codes of each length
    int32_t offset_[17];   // from a code to its symbol's index
};

}  // namespace fastdata
