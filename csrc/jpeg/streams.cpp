#include "jpeg/streams.h"

namespace fastdata {
namespace {

#define FASTDATA_INLINE inline __attribute__((always_inline))

constexpr int kSymbols = 56 / HuffmanLookup::kBits;  // per refill
static_assert(kSymbols == 5, "the pragmas below repeat it");

enum class Step { kNext, kRefill, kEnd, kBad };

// Natural position of the coefficient before the k-th in zigzag order. Positions past the last,
// which only damaged data reach, map to the last as in libjpeg, so that no write needs a check.
struct Order {
    uint8_t before[64 + entry::kEndOfBlock];
    constexpr Order() : before() {
        for (uint8_t &place : before) place = 63;
        for (int k = 0; k < 64; ++k) before[k + 1] = kZigzag.at[k];
    }
};
constexpr Order kOrder;

// A part that is being decoded. The innermost loop uses the first four members, which the compiler
// keeps in registers as far as it has any: state of two lanes at a time is why there are few.
struct Lane {
    BitPlace in;
    const HuffmanLookup *ac = nullptr;
    size_t k = 0;  // zigzag position of the block's next coefficient
    int16_t *block = nullptr;

    const StreamPart *part = nullptr;
    const McuCodes::Block *code = nullptr;  // tables of the next block
    uint8_t *coded = nullptr;
    const uint8_t *cap = nullptr;

    FASTDATA_INLINE void take(uint32_t found) {
        in.drop(found);
        k += entry::advance(found);
        block[kOrder.before[k]] = static_cast<int16_t>(found >> 16);
    }

    // False if there is no such code.
    FASTDATA_INLINE bool take_more(uint32_t found) {
        in.refill(cap);
        found = in.take_more(*ac, found);
        if (found == entry::kNone) return fail();
        take(found);
        return true;
    }

    FASTDATA_INLINE bool start(const McuCodes &codes, const StreamPart *which) {
        part = which;
        in = part->stream->place;
        block = part->coefficients;
        coded = part->coded;
        cap = part->stream->cap;
        code = codes.block;
        return begin_block(codes);
    }

    FASTDATA_INLINE bool begin_block(const McuCodes &codes) {
        in.refill(cap);
        uint32_t found = in.look(*code->dc);
        if (__builtin_expect(found & entry::kMore, 0)) found = in.take_more(*code->dc, found);
        if (found == entry::kNone) return fail();
        uint32_t &dc = part->stream->dc[code->component];
        dc += static_cast<uint32_t>(entry::value(found));
        in.drop(found);
        k = 1;
        block[0] = static_cast<int16_t>(dc);
        ac = code->ac;
        if (++code == codes.block + codes.blocks) code = codes.block;
        return true;
    }

    // Stores how far the stream was read: the caller tells missing data from a bad code by it.
    bool fail() const {
        part->stream->place = in;
        return false;
    }

    // False at the end of the part.
    FASTDATA_INLINE bool end_block() {
        const int last = static_cast<int>(k) - entry::kEndOfBlock;
        *coded++ = static_cast<uint8_t>(last > 0 ? last : 64);
        block += 64;
        if (coded != part->coded + part->blocks) return true;
        part->stream->place = in;
        return false;
    }

    // Decodes one symbol.
    FASTDATA_INLINE Step step(const McuCodes &codes) {
        const uint32_t found = in.look(*ac);
        const bool more = found & entry::kMore;
        if (more) {
            if (!take_more(found)) return Step::kBad;
        } else {
            take(found);
        }
        if (k <= 63) return more ? Step::kRefill : Step::kNext;
        if (!end_block()) return Step::kEnd;
        return begin_block(codes) ? Step::kRefill : Step::kBad;
    }
};

FASTDATA_INLINE bool finish(const McuCodes &codes, Lane lane) {
    for (;;) {
        lane.in.refill(lane.cap);
#pragma GCC unroll 5
        for (int symbol = 0; symbol < kSymbols; ++symbol) {
            const Step step = lane.step(codes);
            if (step == Step::kBad) return false;
            if (step == Step::kEnd) return true;
            if (step == Step::kRefill) break;
        }
    }
}

}  // namespace

bool decode_streams(const McuCodes &codes, const StreamPart *parts, size_t count) {
    const StreamPart *next = parts, *const last = parts + count;
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
            const Step of_a = a.step(codes);
            if (of_a == Step::kBad) return false;
            if (of_a == Step::kEnd) {
                if (next == last) return finish(codes, b);
                if (!a.start(codes, next++)) return false;
            }
            if (of_a != Step::kNext) break;
            const Step of_b = b.step(codes);
            if (of_b == Step::kBad) return false;
            if (of_b == Step::kEnd) {
                if (next == last) return finish(codes, a);
                if (!b.start(codes, next++)) return false;
            }
            if (of_b != Step::kNext) break;
        }
    }
}

}  // namespace fastdata
