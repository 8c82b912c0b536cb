#include "jpeg_huffman.h"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace fastdata {
namespace {

// An entry holds, from its low byte: the bits it takes, the coefficients it passes, its value.
// With kMore, the value's bits did not fit the table and its size stands in its place, or, where
// the length is 0, the code did not fit.
constexpr uint32_t kLength = 0x3F;
constexpr uint32_t kMore = 0x80;
constexpr uint32_t kNoEntry = UINT32_MAX;
constexpr int kEndOfBlock = 128;  // coefficients that an end of block passes

// Natural position of the k-th coefficient; what lies beyond the 64th goes to the 64th, as in
// libjpeg, which that way survives damaged data.
struct Order {
    uint8_t at[64 + kEndOfBlock];
    constexpr Order() : at() {
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
        for (int k = 64; k < 64 + kEndOfBlock; ++k) at[k] = 63;
    }
};
constexpr Order kOrder;

// A value of `size` bits: those under half of the range stand for negative ones.
int extend(uint32_t bits, int size) {
    const int value = static_cast<int>(bits);
    return value < 1 << (size - 1) ? value - (1 << size) + 1 : value;
}

uint32_t pack(int length, int run, int value) {
    return static_cast<uint32_t>(value) << 16 | static_cast<uint32_t>(run) << 8 |
           static_cast<uint32_t>(length);
}

int length_of(uint32_t entry) { return static_cast<int>(entry & kLength); }
int run_of(uint32_t entry) { return static_cast<int>(entry >> 8 & 0xFF); }
int value_of(uint32_t entry) { return static_cast<int32_t>(entry) >> 16; }

uint64_t load_big_endian(const uint8_t *at) {
    uint64_t word;
    std::memcpy(&word, at, sizeof word);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    return word;
#else
    return __builtin_bswap64(word);
#endif
}

}  // namespace

bool HuffmanLookup::build(const uint8_t *counts, const uint8_t *symbols, bool is_dc) {
    std::fill(std::begin(entry_), std::end(entry_), kMore);
    uint32_t code = 0;
    int index = 0;
    for (int length = 1; length <= 16; ++length, code <<= 1) {
        offset_[length] = index - static_cast<int32_t>(code);
        if (index + counts[length] > 256) return false;
        for (int i = 0; i < counts[length]; ++i, ++code, ++index) {
            const int symbol = symbols[index];
            symbol_[index] = static_cast<uint8_t>(symbol);
            if (is_dc && symbol > 15) return false;
            if (length > kBits) continue;
            const int size = symbol & 15, rest = kBits - length;
            int run = symbol >> 4;
            if (!is_dc && size == 0 && run != 15) run = kEndOfBlock;
            if (code >> length) return false;
            uint32_t *to = entry_ + (size_t{code} << rest);
            if (size == 0) {
                std::fill_n(to, 1 << rest, pack(length, run, 0));
            } else if (size > rest) {
                std::fill_n(to, 1 << rest, pack(length, run, size) | kMore);
            } else {
                for (uint32_t value = 0; value < 1u << size; ++value, to += 1 << (rest - size)) {
                    std::fill_n(to, 1 << (rest - size),
                                pack(length + size, run, extend(value, size)));
                }
            }
        }
        if (code > 1u << length) return false;
        limit_[length] = code << (16 - length);
    }
    limit_[17] = UINT32_MAX;
    return true;
}

uint32_t HuffmanLookup::find_long(uint32_t pattern) const {
    int length = kBits + 1;
    while (pattern >= limit_[length]) ++length;
    if (length > 16) return kNoEntry;
    const int index = static_cast<int>(pattern >> (16 - length)) + offset_[length];
    return pack(length, symbol_[index], 0);
}

void BlockReader::start(const uint8_t *bytes, size_t size) {
    begin_ = next_ = bytes;
    bits_in_ = 8 * static_cast<int64_t>(size);
    bits_ = 0;
    count_ = 0;
}

// What BlockReader keeps of its place, in locals that stay in registers.
struct BlockReader::Place {
    const uint8_t *next;
    uint64_t bits;
    int count;

    // To 56 bits or more: 31 for any code with its value, and two entries of the table before it.
    void refill() {
        bits |= load_big_endian(next) >> count;
        next += (63 - count) >> 3;
        count |= 56;
    }

    void drop(int length) {
        bits <<= length;
        count -= length;
    }

    int take_value(int size) {
        const auto value = static_cast<uint32_t>(bits >> (64 - size));
        drop(size);
        return extend(value, size);
    }

    // Takes the bits of an entry with kMore, and returns what it passes and gives as an entry of
    // its own; kNoEntry where there is no such code.
    uint32_t take_more(const HuffmanLookup &table, uint32_t entry, bool is_dc) {
        int size = value_of(entry), run = run_of(entry);
        if (length_of(entry) == 0) {
            const uint32_t found = table.find_long(static_cast<uint32_t>(bits >> 48));
            if (found == kNoEntry) return kNoEntry;
            const int symbol = run_of(found);
            size = symbol & 15;
            run = size == 0 && !is_dc && symbol != 0xF0 ? kEndOfBlock : symbol >> 4;
            entry = found;
        }
        drop(length_of(entry));
        return pack(0, run, size ? take_value(size) : 0);
    }
};

// Calls put.dc(value) once and put.ac(place, run, value) for each entry.
template <typename Put>
bool BlockReader::read_block(const HuffmanLookup &dc_table, const HuffmanLookup &ac_table,
                             uint32_t &dc, Put &put) {
    constexpr int kShift = 64 - HuffmanLookup::kBits;
    Place in{next_, bits_, count_};
    in.refill();
    uint32_t entry = dc_table.entry_[in.bits >> kShift];
    if (entry & kMore) entry = in.take_more(dc_table, entry, true);
    if (entry == kNoEntry) return false;
    in.drop(length_of(entry));
    dc += static_cast<uint32_t>(value_of(entry));
    put.dc(static_cast<int16_t>(dc));

    int k = 1;
    const auto look = [&] { entry = ac_table.entry_[in.bits >> kShift]; };
    const auto take = [&] {
        in.drop(length_of(entry));
        k += run_of(entry);
        put.ac(k, run_of(entry), value_of(entry));
        return ++k > 63;
    };
    // A refill serves two whole entries and, after them, anything.
    for (;;) {
        in.refill();
        look();
        if (!(entry & kMore)) {
            if (take()) break;
            look();
            if (!(entry & kMore)) {
                if (take()) break;
                look();
            }
        }
        if (entry & kMore) entry = in.take_more(ac_table, entry, false);
        if (entry == kNoEntry) return false;
        if (take()) break;
    }
    if (k > 64 && value_of(entry) != 0) return false;
    next_ = in.next;
    bits_ = in.bits;
    count_ = in.count;
    return true;
}

bool BlockReader::read(const HuffmanLookup &dc_table, const HuffmanLookup &ac_table,
                       int16_t *block, uint32_t &dc) {
    struct {
        int16_t *block;
        void dc(int16_t value) { block[0] = value; }
        void ac(int k, int, int value) { block[kOrder.at[k]] = static_cast<int16_t>(value); }
    } put;
    int16_t passed[64];
    put.block = block ? block : passed;
    return read_block(dc_table, ac_table, dc, put);
}

uint32_t *BlockReader::read_symbols(const HuffmanLookup &dc_table, const HuffmanLookup &ac_table,
                                    uint32_t table, uint32_t *out, uint32_t *counts, uint32_t &dc,
                                    int &previous) {
    struct Writer {
        uint32_t *out;
        uint32_t *counts;
        uint32_t table;  // in its place
        int previous;

        void put_symbol(uint32_t symbol, uint32_t bits) {
            ++counts[table >> 16 | symbol];
            *out++ = table | symbol << 16 | bits;
        }
        void put(int run, int value) {
            const auto sign = static_cast<uint32_t>(value >> 31);
            const uint32_t magnitude = (static_cast<uint32_t>(value) ^ sign) - sign;
            const auto size = static_cast<uint32_t>(magnitude ? 32 - __builtin_clz(magnitude) : 0);
            const uint32_t bits = (static_cast<uint32_t>(value) + sign) & ((1u << size) - 1);
            put_symbol(static_cast<uint32_t>(run) << 4 | size, bits & 0xFFFF);
        }
        void dc(int16_t value) {
            put(0, value - previous);
            previous = value;
            table += 1u << 24;
        }
        void ac(int k, int run, int value) {
            if (value != 0) {
                if (k < 64) put(run, value);
            } else if (k < 63) {
                put_symbol(0xF0, 0);  // sixteen zeros
            } else {
                // zeros up to the end need no counting
                for (; out[-1] == (table | 0xF00000); --out) --counts[table >> 16 | 0xF0];
                put_symbol(0, 0);
            }
        }
    } put{out, counts, table << 24, previous};
    if (!read_block(dc_table, ac_table, dc, put)) return nullptr;
    previous = put.previous;
    return put.out;
}

}  // namespace fastdata
