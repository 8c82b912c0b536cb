// Reading Huffman-coded JPEG data: tables that look codes up, and a position in the bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace fastdata {

// Natural position of the k-th coefficient in zigzag order.
struct Zigzag {
    uint8_t at[64];
    constexpr Zigzag() : at() {
        int x = 0, y = 0;
        for (int k = 0; k < 64; ++k) {
            at[k] = static_cast<uint8_t>(8 * y + x);
            const bool up = (x + y) % 2 == 0;
            if (up && x == 7) ++y;
            else if (!up && y == 7) ++x;
            else if (up && y == 0) ++x;
            else if (!up && x == 0) ++y;
            else { x += up ? 1 : -1; y += up ? -1 : 1; }
        }
    }
};
inline constexpr Zigzag kZigzag;

// A table entry packs what the next bits mean into 32 bits. From the low byte up: the number of
// bits it consumes, how far it advances in zigzag order, and the coefficient's value. With kMore
// set, the value's bits did not fit into the lookup, and its size is stored instead of the value;
// an entry that is kMore alone means that not even the code fitted.
namespace entry {
constexpr uint32_t kLength = 0x3F;
constexpr uint32_t kMore = 0x80;
constexpr uint32_t kNone = UINT32_MAX;
// How far an end of block advances: farther than any run of zeros, so that a position beyond it
// tells how many coefficients came before.
constexpr int kEndOfBlock = 129;

inline uint32_t pack(int length, int advance, int value) {
    return static_cast<uint32_t>(value) << 16 | static_cast<uint32_t>(advance) << 8 |
           static_cast<uint32_t>(length);
}

inline uint32_t length(uint32_t found) { return found & kLength; }
inline uint32_t advance(uint32_t found) { return found >> 8 & 0xFF; }
inline int value(uint32_t found) { return static_cast<int32_t>(found) >> 16; }

// `symbol` is as the file has it: a run of zeros in the high four bits, a size in the low four.
inline int advance_of(int symbol, bool is_dc) {
    return !is_dc && (symbol & 15) == 0 && symbol != 0xF0 ? kEndOfBlock : (symbol >> 4) + 1;
}
}  // namespace entry

class HuffmanLookup {
  public:
    // Enough for most codes together with their values, at 8 KiB a table.
    static constexpr int kBits = 11;

    // Takes a DHT segment's counts of codes by length (counts[1] to counts[16]) and its symbols in
    // the order of their codes. False if they make no prefix code, or are no sizes for DC. Cheap if
    // the table equals the previous one, which is common: most encoders write the standard tables.
    bool build(const uint8_t *counts, const uint8_t *symbols, bool is_dc);

    // Indexed by the next kBits bits.
    const uint32_t *entries() const { return entry_; }

    // The entry of a code longer than kBits, which starts at the top of the 16 bits.
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

// Decodes a value from its `size` bits: those that begin with a zero stand for negative ones.
// Branch-free, because signs are random and a branch on them would be mispredicted half the time.
inline int extend_value(uint32_t bits, int size) {
    const uint32_t positive = (bits << 1) >> size;
    return static_cast<int>(bits + ((positive - 1) & (1 - (1u << size))));
}

inline uint64_t load_big_endian(const uint8_t *at) {
    uint64_t word;
    std::memcpy(&word, at, sizeof word);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    return word;
#else
    return __builtin_bswap64(word);
#endif
}

// A position in coded bytes whose stuffing was removed. It is small and copied into locals, so that
// the compiler keeps it in registers.
struct BitPlace {
    // This many bytes past the last must be readable, whatever they hold.
    static constexpr int kPadding = 24;

    const uint8_t *next = nullptr;
    uint64_t bits = 0;  // the next `count` bits, from the top
    uint32_t count = 0;

    // Tops up to at least 56 bits: five entries without kMore, or any entry with it. Stops at
    // `cap`, eight bytes past the last one: whoever gets there has consumed more bits than there
    // are.
    void refill(const uint8_t *cap) {
        bits |= load_big_endian(next) >> count;
        next += (63 - count) >> 3;
        next = next < cap ? next : cap;
        count |= 56;
    }

    uint32_t look(const HuffmanLookup &table) const {
        return table.entries()[bits >> (64 - HuffmanLookup::kBits)];
    }

    void drop(uint32_t found) {
        bits <<= entry::length(found);
        count -= entry::length(found);
    }

    // Consumes the bits of an entry with kMore, right after a refill. Returns an entry with the
    // value, which consumes nothing, or kNone if there is no such code.
    uint32_t take_more(const HuffmanLookup &table, uint32_t found) {
        if (found == entry::kMore) found = table.find_long(static_cast<uint32_t>(bits >> 48));
        if (found == entry::kNone) return found;
        drop(found);
        const int size = entry::value(found);
        // Two shifts, as one of 64 for a size of 0 would be undefined.
        const auto value = static_cast<uint32_t>(bits >> 1 >> (63 - size));
        bits <<= size;
        count -= static_cast<uint32_t>(size);
        return entry::pack(0, static_cast<int>(entry::advance(found)), extend_value(value, size));
    }
};

}  // namespace fastdata
