#include "jpeg_streams.h"

namespace fastdata {
namespace {

#define FASTDATA_INLINE inline __attribute__((always_inline))

constexpr int kSymbols = 56 / HuffmanLookup::kBits;  // that one refill serves

// Natural position of the coefficient before the k-th in zigzag order; what lies behind the last
// goes to the last, as in libjpeg, which that way survives damaged data.
struct Order {
    uint8_t before[64 + entry::kEndOfBlock];
    constexpr Order() : before() {
        int x = 0, y = 0;
        for (uint8_t &place : before) place = 63;
        for (int k = 0; k < 64; ++k) {
            before[k + 1] = static_cast<uint8_t>(8 * y + x);
            const bool up = (x + y) % 2 == 0;
            if (up && x == 7) ++y;
            else if (!up && y == 7) ++x;
            else if (up && y == 0) ++x;
            else if (!up && x == 0) ++y;
            else { x += up ? 1 : -1; y += up ? -1 : 1; }
        }
    }
};
constexpr Order kOrder;

// A part that is being decoded. The first four are for the innermost loop, and in registers as far
// as there are any.
struct Lane {
    BitPlace in;
    const HuffmanLookup *ac = nullptr;
    size_t k = 0;  // of the block's coefficient that comes next
    int16_t *block = nullptr;

    const StreamPart *part = nullptr;
    const McuCodes::Block *code = nullptr;  // of the next block
    uint8_t *coded = nullptr;
    const uint8_t *cap = nullptr;

    FASTDATA_INLINE void take(uint32_t found) {
        in.drop(found);
        k += entry::passes(found);
        block[kOrder.before[k]] = static_cast<int16_t>(found >> 16);
    }

    // False where there is no such code.
    FASTDATA_INLINE bool take_more(uint32_t found) {
        in.refill(cap);
        found = in.take_more(*ac, found);
        if (found == entry::kNone) return false;
        take(found);
        return true;
    }

    FASTDATA_INLINE bool start(const McuCodes &codes, const StreamPart *which) {
        part = which;
        in = part->stream->place;
        block = part->coefficients - 64;
        coded = part->coded;
        cap = part->stream->cap;
        code = codes.block;
        return begin_block(codes);
    }

    FASTDATA_INLINE bool begin_block(const McuCodes &codes) {
        in.refill(cap);
        block += 64;
        k = 0;
        uint32_t found = in.look(*code->dc);
        if (__builtin_expect(found & entry::kMore, 0)) found = in.take_more(*code->dc, found);
        uint32_t &dc = part->stream->dc[code->component];
        dc += static_cast<uint32_t>(entry::value(found));
        in.drop(found);
        k = 1;
        block[0] = static_cast<int16_t>(dc);
        ac = code->ac;
        if (++code == codes.block + codes.blocks) code = codes.block;
        return found != entry::kNone;
    }

    // False at the end of the part.
    FASTDATA_INLINE bool end_block() {
        const int last = static_cast<int>(k) - entry::kEndOfBlock;
        *coded++ = static_cast<uint8_t>(last > 0 ? last : 64);
        if (coded != part->coded + part->blocks) return true;
        part->stream->place = in;
        return false;
    }
};

FASTDATA_INLINE bool finish(const McuCodes &codes, Lane lane) {
    for (;;) {
        lane.in.refill(lane.cap);
#pragma GCC unroll 5
        for (int symbol = 0; symbol < kSymbols; ++symbol) {
            const uint32_t found = lane.in.look(*lane.ac);
            if (found & entry::kMore) {
                if (!lane.take_more(found)) return false;
                symbol = kSymbols;
            } else {
                lane.take(found);
            }
            if (lane.k <= 63) continue;
            if (!lane.end_block()) return true;
            if (!lane.begin_block(codes)) return false;
            break;
        }
    }
}

FASTDATA_INLINE bool decode(const McuCodes &codes, const StreamPart *next, const StreamPart *last) {
    Lane a, b;
    if (next == last) return true;
    if (!a.start(codes, next++)) return false;
    if (next == last) return finish(codes, a);
    if (!b.start(codes, next++)) return false;
    for (;;) {
        a.in.refill(a.cap);
        b.in.refill(b.cap);
#pragma GCC unroll 5
        for (int symbol = 0; symbol < kSymbols; ++symbol) {
            const uint32_t of_a = a.in.look(*a.ac);
            if (of_a & entry::kMore) {
                if (!a.take_more(of_a)) return false;
                symbol = kSymbols;
            } else {
                a.take(of_a);
            }
            if (a.k > 63) {
                if (a.end_block()) {
                    if (!a.begin_block(codes)) return false;
                } else {
                    if (next == last) return finish(codes, b);
                    if (!a.start(codes, next++)) return false;
                }
                symbol = kSymbols;
            }
            const uint32_t of_b = b.in.look(*b.ac);
            if (of_b & entry::kMore) {
                if (!b.take_more(of_b)) return false;
                symbol = kSymbols;
            } else {
                b.take(of_b);
            }
            if (b.k > 63) {
                if (b.end_block()) {
                    if (!b.begin_block(codes)) return false;
                } else {
                    if (next == last) return finish(codes, a);
                    if (!b.start(codes, next++)) return false;
                }
                break;
            }
        }
    }
}

}  // namespace

bool decode_streams(const McuCodes &codes, const StreamPart *parts, size_t count) {
    return decode(codes, parts, parts + count);
}

}  // namespace fastdata
