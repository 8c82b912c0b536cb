// What the readers of Huffman-coded blocks share: a table's entries, and a place in coded bytes.
#pragma once

#include <cstdint>
#include <cstring>

#include "jpeg/huffman.h"

namespace fastdata {

// An entry holds, from its low byte: the bits it takes, the coefficients it passes with its own,
// its value. With kMore, the value's bits did not fit the table and its size stands in its place,
// or, where there is nothing else, the code did not fit.
namespace entry {
constexpr uint32_t kLength = 0x3F;
constexpr uint32_t kMore = 0x80;
constexpr uint32_t kNone = UINT32_MAX;
constexpr int kEndOfBlock = 129;  // coefficients that an end of block passes

inline uint32_t pack(int length, int passes, int value) {
    return static_cast<uint32_t>(value) << 16 | static_cast<uint32_t>(passes) << 8 |
           static_cast<uint32_t>(length);
}

inline uint32_t length(uint32_t found) { return found & kLength; }
inline uint32_t passes(uint32_t found) { return found >> 8 & 0xFF; }
inline int value(uint32_t found) { return static_cast<int32_t>(found) >> 16; }

// Of a symbol of the file, run and size.
inline int passes_of(int symbol, bool is_dc) {
    return !is_dc && (symbol & 15) == 0 && symbol != 0xF0 ? kEndOfBlock : (symbol >> 4) + 1;
}
}  // namespace entry

// A value of `size` bits: those that begin with a zero stand for negative ones. Without a branch,
// since signs are what no processor can guess.
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

// A place in coded bytes without stuffing, for locals that stay in registers.
struct BitPlace {
    // So many bytes behind the last must be readable, whatever they hold.
    static constexpr int kPadding = 24;

    const uint8_t *next = nullptr;
    uint64_t bits = 0;  // the next `count` bits, from the top
    uint32_t count = 0;

    // To 56 bits or more: five entries without kMore, or any with it. Never goes on behind `cap`,
    // eight bytes after the last: whoever comes there has read more bits than there are.
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

    // Takes the bits of what look() found with kMore, for a place that was just refilled. An entry
    // of what they mean, which takes none; kNone where there is no such code.
    uint32_t take_more(const HuffmanLookup &table, uint32_t found) {
        if (found == entry::kMore) found = table.find_long(static_cast<uint32_t>(bits >> 48));
        if (found == entry::kNone) return found;
        drop(found);
        const int size = entry::value(found);
        const auto value = static_cast<uint32_t>(bits >> 1 >> (63 - size));
        bits <<= size;
        count -= static_cast<uint32_t>(size);
        return entry::pack(0, static_cast<int>(entry::passes(found)), extend_value(value, size));
    }
};

}  // namespace fastdata
