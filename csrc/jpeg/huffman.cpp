#include "jpeg/huffman.h"

#include <algorithm>
#include <iterator>
#include <numeric>


namespace fastdata {

bool HuffmanLookup::build(const uint8_t *counts, const uint8_t *symbols, bool is_dc) {
    if (is_same(counts, symbols, is_dc)) return true;
    built_ = false;
    is_dc_ = is_dc;
    std::copy(counts, counts + 17, count_);
    // Patterns that no short code claims below begin a longer code, or none.
    std::fill(std::begin(entry_), std::end(entry_), entry::kMore);
    uint32_t code = 0;
    int index = 0;
    for (int length = 1; length <= 16; ++length, code <<= 1) {
        offset_[length] = index - static_cast<int32_t>(code);
        if (index + counts[length] > 256) return false;
        for (int i = 0; i < counts[length]; ++i, ++code, ++index) {
            const int symbol = symbols[index];
            symbol_[index] = static_cast<uint8_t>(symbol);
            if (is_dc && symbol > 15) return false;
            if (length > kBits) continue;  // find_long finds it
            if (code >> length) return false;  // checked before entry_ is written out of bounds
            const int advance = entry::advance_of(symbol, is_dc), size = symbol & 15;
            const int rest = kBits - length;
            uint32_t *to = entry_ + (size_t{code} << rest);
            // Every pattern that begins with the code gets an entry: with the value, if its bits
            // fit.
            if (size > rest) {
                std::fill_n(to, 1 << rest, entry::pack(length, advance, size) | entry::kMore);
                continue;
            }
            for (uint32_t bits = 0; bits < 1u << size; ++bits, to += 1 << (rest - size)) {
                std::fill_n(to, 1 << (rest - size),
                            entry::pack(length + size, advance, extend_value(bits, size)));
            }
        }
        if (code > 1u << length) return false;
        limit_[length] = code << (16 - length);
    }
    limit_[17] = UINT32_MAX;  // stops find_long
    built_ = true;
    return true;
}

bool HuffmanLookup::is_same(const uint8_t *counts, const uint8_t *symbols, bool is_dc) const {
    if (!built_ || is_dc != is_dc_) return false;
    if (!std::equal(counts + 1, counts + 17, count_ + 1)) return false;
    const int codes = std::accumulate(counts + 1, counts + 17, 0);
    return std::equal(symbols, symbols + codes, symbol_);
}

uint32_t HuffmanLookup::find_long(uint32_t pattern) const {
    int length = kBits + 1;
    while (pattern >= limit_[length]) ++length;
    if (length > 16) return entry::kNone;
    const int symbol = symbol_[static_cast<int>(pattern >> (16 - length)) + offset_[length]];
    return entry::pack(length, entry::advance_of(symbol, is_dc_), symbol & 15) | entry::kMore;
}

}  // namespace fastdata
