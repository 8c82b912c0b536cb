// Huffman decoding of sequential JPEG blocks by tables that give run, value and length at once.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fastdata {

class HuffmanLookup {
  public:
    static constexpr int kBits = 10;

    // From a DHT segment's counts of codes by length (counts[1] to counts[16]) and symbols in the
    // order of their codes. False for counts that make no prefix code.
    bool build(const uint8_t *counts, const uint8_t *symbols, bool is_dc);

  private:
    friend class BlockReader;

    // The length and symbol of a code of more than kBits at the top of 16 bits.
    uint32_t find_long(uint32_t pattern) const;

    uint32_t entry_[1 << kBits];
    uint32_t limit_[18];   // first 16-bit pattern beyond the codes of each length
    int32_t offset_[17];   // from a code to its symbol's index
    uint8_t symbol_[256];
};

// Reads blocks from coded bytes without stuffing. At least kPadding bytes after `size` must be
// readable, whatever they hold.
class BlockReader {
  public:
    static constexpr size_t kPadding = 4096;

    void start(const uint8_t *bytes, size_t size);

    // Reads one block into `block` (64 zeros, in natural order), or passes over it if that is
    // null, and adds the DC difference to `dc`. False for a code that does not exist or a
    // coefficient beyond the last. Up to 10 blocks may be read between two questions to overran().
    bool read(const HuffmanLookup &dc_table, const HuffmanLookup &ac_table, int16_t *block,
              uint32_t &dc);

    // The same block as symbols: a DC difference to `previous`, which becomes the block's DC, then
    // run and size of each coefficient, in the order of the file. A symbol stands in the bits from
    // 16 on, above it `table`, plus one for AC, and below it the value's bits, whose number is in
    // the symbol's low four bits; `counts` counts what is in the upper half. Writes at most
    // kMaxSymbols and returns the end of what it wrote; nullptr where read() is false.
    static constexpr int kMaxSymbols = 65;
    uint32_t *read_symbols(const HuffmanLookup &dc_table, const HuffmanLookup &ac_table,
                           uint32_t table, uint32_t *out, uint32_t *counts, uint32_t &dc,
                           int &previous);

    // Whether more bits were read than there are.
    bool overran() const { return bits_used() > bits_in_; }
    // Whether whole bytes are left.
    bool has_more() const { return bits_in_ - bits_used() >= 8; }

  private:
    template <typename Put>
    bool read_block(const HuffmanLookup &dc_table, const HuffmanLookup &ac_table, uint32_t &dc,
                    Put &put);
    int64_t bits_used() const { return 8 * (next_ - begin_) - count_; }
    struct Place;

    const uint8_t *begin_ = nullptr;
    const uint8_t *next_ = nullptr;
    int64_t bits_in_ = 0;
    uint64_t bits_ = 0;  // the next count_ bits, from the top
    int count_ = 0;
};

}  // namespace fastdata
