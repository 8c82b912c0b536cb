// Decodes the coefficients of restart runs, two of them side by side.
//
// Each symbol of a run waits for the one before it: its place in the bits follows from that one's
// length. Runs do not wait for each other, so a processor that has two of them at hand works on one
// while the other's table is looked up.
#pragma once

#include <cstddef>
#include <cstdint>

#include "jpeg/bits.h"

namespace fastdata {

// A run's coded bytes, without stuffing, and how far they are read.
struct RunStream {
    BitPlace place;
    const uint8_t *begin = nullptr;
    const uint8_t *cap = nullptr;  // as BitPlace::refill wants it
    int64_t bits_in = 0;
    uint32_t dc[4] = {};  // of each component's last block

    // BitPlace::kPadding bytes behind the last must be readable.
    void start(const uint8_t *bytes, size_t size) {
        *this = {};
        place.next = begin = bytes;
        cap = bytes + size + 8;
        bits_in = 8 * static_cast<int64_t>(size);
    }

    // Whether more bits were read than there are.
    bool overran() const { return bits_used() > bits_in; }
    // Whether whole bytes are left.
    bool has_more() const { return bits_in - bits_used() >= 8; }

  private:
    int64_t bits_used() const { return 8 * (place.next - begin) - place.count; }
};

// What each block of an MCU is coded with.
struct McuCodes {
    static constexpr int kMaxBlocks = 10;

    struct Block {
        const HuffmanLookup *dc;
        const HuffmanLookup *ac;
        int component;  // place in the scan
    };
    Block block[kMaxBlocks];
    int blocks = 0;
};

// The next blocks of a stream, in whole MCUs, and where they go.
struct StreamPart {
    RunStream *stream;
    size_t blocks;          // at least one
    int16_t *coefficients;  // 64 zeros a block, filled in natural order
    uint8_t *coded;         // a block: from this coefficient on, in zigzag order, all are zeros
};

// Decodes all parts, whose streams must differ. False where a code does not exist. A stream that
// ends too early is for the caller to find by overran().
bool decode_streams(const McuCodes &codes, const StreamPart *parts, size_t count);

}  // namespace fastdata
