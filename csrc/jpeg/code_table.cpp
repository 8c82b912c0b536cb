#include "jpeg/code_table.h"

#include <algorithm>
#include <iterator>

namespace fastdata {
namespace {

constexpr int kMaxLength = 16;
// JPEG allows no code of ones alone. A symbol that never occurs takes part in the merging, gets the
// last of the longest codes, which is that one, and is then removed.
constexpr int kReserved = 256;
constexpr int kSymbols = kReserved + 1;

// Joins the two lightest trees until one is left. Only the depth of each symbol matters, so a tree
// is a chain of its symbols, and joining two makes every symbol in both one bit longer.
void merge_trees(const uint32_t *counts, int *depth) {
    uint64_t weight[kSymbols];
    std::copy(counts, counts + kReserved, weight);
    weight[kReserved] = 1;
    int next[kSymbols];
    std::fill(std::begin(next), std::end(next), -1);
    int root[kSymbols], trees = 0;
    for (int symbol = 0; symbol < kSymbols; ++symbol) {
        if (weight[symbol]) root[trees++] = symbol;
    }
    while (trees > 1) {
        // Of equal weights the last, so that the reserved symbol ends up among the deepest.
        int first = 0, second = -1;
        for (int t = 1; t < trees; ++t) {
            if (weight[root[t]] <= weight[root[first]]) {
                second = first;
                first = t;
            } else if (second < 0 || weight[root[t]] <= weight[root[second]]) {
                second = t;
            }
        }
        const int kept = root[first], joined = root[second];
        weight[kept] += weight[joined];
        std::copy(root + second + 1, root + trees, root + second);
        --trees;
        int last = kept;
        for (++depth[last]; next[last] >= 0; ++depth[last]) last = next[last];
        next[last] = joined;
        for (int symbol = joined; symbol >= 0; symbol = next[symbol]) ++depth[symbol];
    }
}

// Shortens codes of more than 16 bits. They come in pairs: one of a pair moves up to its parent,
// the other joins a shorter code, which grows by one bit to make room.
void limit_lengths(int *codes_of) {
    for (int length = kSymbols; length > kMaxLength; --length) {
        while (codes_of[length] > 0) {
            int shorter = length - 2;
            while (codes_of[shorter] == 0) --shorter;
            codes_of[length] -= 2;
            ++codes_of[length - 1];
            codes_of[shorter + 1] += 2;
            --codes_of[shorter];
        }
    }
}

void remove_reserved(int *codes_of) {
    int longest = kMaxLength;
    while (longest > 0 && codes_of[longest] == 0) --longest;
    if (longest > 0) --codes_of[longest];
}

// Symbols by depth, which after limit_lengths may not be their length any more but is still its
// order.
void sort_symbols(const int *depth, uint8_t *symbols) {
    for (int length = 1; length < kSymbols; ++length) {
        for (int symbol = 0; symbol < kReserved; ++symbol) {
            if (depth[symbol] == length) *symbols++ = static_cast<uint8_t>(symbol);
        }
    }
}

// Numbers the codes as every decoder does: counting up, and appending a zero at each longer length.
void assign_codes(const CodeTable &table, uint32_t *code) {
    const uint8_t *symbol = table.symbols;
    uint32_t next_code = 0;
    for (uint32_t length = 1; length <= kMaxLength; ++length, next_code <<= 1) {
        for (int i = 0; i < table.lengths[length]; ++i) code[*symbol++] = next_code++ << 8 | length;
    }
}

}  // namespace

void CodeTable::build(const uint32_t *counts, uint32_t *code) {
    int depth[kSymbols] = {};
    merge_trees(counts, depth);
    int codes_of[kSymbols + 1] = {};  // number of codes of each length
    for (int length : depth) codes_of[length] += length > 0;
    limit_lengths(codes_of);
    remove_reserved(codes_of);
    std::transform(codes_of, codes_of + kMaxLength + 1, lengths,
                   [](int count) { return static_cast<uint8_t>(count); });
    sort_symbols(depth, symbols);
    assign_codes(*this, code);
}

int CodeTable::codes() const {
    int sum = 0;
    for (int count : lengths) sum += count;
    return sum;
}

}  // namespace fastdata
