#pragma once

#include <cstdint>

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

}  // namespace fastdata
