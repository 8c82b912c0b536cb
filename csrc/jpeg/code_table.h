// Huffman codes made for one image, from how often each symbol occurs in it (ITU-T T.81, Annex
// K.2).
#pragma once

#include <cstdint>

namespace fastdata {

struct CodeTable {
    uint8_t lengths[17] = {};  // number of codes of each length, as a DHT segment has them
    uint8_t symbols[256];      // in the order of their codes

    // Makes codes of at most 16 bits for 256 symbols; one that occurs 0 times gets none. Sets
    // `code` of each symbol: the length in the low eight bits, the code above.
    void build(const uint32_t *counts, uint32_t *code);

    // Number of symbols that have a code.
    int codes() const;
};

}  // namespace fastdata
