// Decodes the coefficients of restart runs, two runs side by side.
//
// Within a run each symbol waits for the one before it, whose length says where it begins.
// Different runs do not wait for each other, so a processor that is given two works on one while it
// waits for the other's table lookup.
#pragma once

#include <cstddef>
#include <cstdint>

#include "jpeg/huffman.h"

namespace fastdata {

// A run's coded bytes, without stuffing, and how far they have been read.
struct RunStream {
    BitPlace place;
    const uint8_t *begin = nullptr;
    const uint8_t *cap = nullptr;  // as BitPlace::refill wants it
    int64_t bits_in = 0;
    uint32_t dc[4] = {};  // of each component's last block

    // BitPlace::kPadding bytes past the last must be readable.
    void start(const uint8_t *bytes, size_t size) {
        *this = {};
        place.next = begin = bytes;
        cap = bytes + size + 8;
        bits_in = 8 * static_cast<int64_t>(size);
    }

    // Whether more bits were consumed than there are.
    bool overran() const { return bits_used() > bits_in; }
    // Whether whole bytes are left; the last byte's remaining bits are padding.
    bool has_more() const { return bits_in - bits_used() >= 8; }

  private:
    int64_t bits_used() const { return 8 * (place.next - begin) - place.count; }
};

// The tables that each block of an MCU is coded with.
struct McuCodes {
    static constexpr int kMaxBlocks = 10;  // ITU-T T.81, B.2.3

    struct Block {
        const HuffmanLookup *dc;
        const HuffmanLookup *ac;
        int component;  // its index in the scan
    };
    Block block[kMaxBlocks];
    int blocks = 0;
};

// The next blocks of a stream, in whole MCUs, and where to write them.
struct StreamPart {
    RunStream *stream;
    size_t blocks;          // at least one
    int16_t *coefficients;  // 64 a block, zeroed by the caller, filled in natural order
    uint8_t *coded;         // one a block: from this coefficient on, in zigzag order, all are zeros
};

// Decodes all parts, whose streams must differ. False if there is a code that no table has. The
// caller finds a stream that ended too early by overran(): no check in the loop pays for it.
bool decode_streams(const McuCodes &codes, const StreamPart *parts, size_t count);

}  // namespace fastdata
