#include "resize/resize.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

namespace fastdata {
namespace {

constexpr int kChannels = 3;
constexpr int64_t kMaxSide = 65535;                // of a JPEG, and of an output
constexpr int64_t kMaxScaled = int64_t{1} << 32;   // 65535 / 1 * 65535 fits

// The most bits of weights for which the sums of a pass fit 31 bits: of 8-bit pixels in the first,
// and of 15-bit values in the second.
constexpr int kMaxVerticalBits = 22;
constexpr int kMaxHorizontalBits = 16;

void check_range(const char *name, int64_t value, int64_t low, int64_t high) {
    if (value >= low && value <= high) return;
    throw std::invalid_argument(std::string(name) + " must be from " + std::to_string(low) +
                                " to " + std::to_string(high) + ", found " +
                                std::to_string(value));
}

void check(const ResizePlan &plan) {
    check_range("source width", plan.source_width, 1, kMaxSide);
    check_range("source height", plan.source_height, 1, kMaxSide);
    check_range("scaled width", plan.scaled_width, 1, kMaxScaled);
    check_range("scaled height", plan.scaled_height, 1, kMaxScaled);
    check_range("cut x", plan.cut_x, -kMaxScaled, kMaxScaled);
    check_range("cut y", plan.cut_y, -kMaxScaled, kMaxScaled);
    check_range("output width", plan.out_width, 1, kMaxSide);
    check_range("output height", plan.out_height, 1, kMaxSide);
}

int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }  // b > 0

// One axis of a plan.
struct Axis {
    int64_t source;
    int64_t scaled;
    int64_t cut;
    int64_t out;

    bool identity() const { return source == scaled; }

    // Outputs [begin, end) lie inside the scaled image.
    int begin() const { return static_cast<int>(std::clamp<int64_t>(-cut, 0, out)); }
    int end() const {
        return static_cast<int>(std::clamp<int64_t>(scaled - cut, begin(), out));
    }
    bool empty() const { return begin() == end(); }

    // From here on lengths are in units of 1 / (2 * scaled) source pixels, which makes all of them
    // integers: source pixel x has its middle at (2 * x + 1) * scaled and is 2 * scaled wide.
    int64_t middle(int64_t output) const { return (2 * (cut + output) + 1) * source; }
    int64_t support() const { return 2 * std::max(source, scaled); }

    // The first source pixel with a weight above zero, and the one after the last.
    int64_t first(int64_t output) const {
        const int64_t x = floor_div(middle(output) - support() + scaled, 2 * scaled);
        return std::max<int64_t>(x, 0);
    }
    int64_t last(int64_t output) const {
        const int64_t x = -floor_div(scaled - support() - middle(output), 2 * scaled);
        return std::min(x, source);
    }

    // The most source pixels that an output looks at.
    int64_t reach() const { return std::min((support() + scaled - 1) / scaled, source); }
};

Axis horizontal_axis(const ResizePlan &plan) {
    return {plan.source_width, plan.scaled_width, plan.cut_x, plan.out_width};
}

Axis vertical_axis(const ResizePlan &plan) {
    return {plan.source_height, plan.scaled_height, plan.cut_y, plan.out_height};
}

// Bits after the point of the weights: as many as 16-bit weights allow. The largest weight is 1; if
// the image shrinks it is below 1.2 * scaled / source, even at edges that cut off part of the
// filter.
int weight_bits(const Axis &axis, int most) {
    int bits = 14;
    while (bits < most && axis.source >= axis.scaled << (bits - 13)) ++bits;
    return bits;
}

// Fills `filter` with the outputs of `axis` that lie inside the scaled image, in reverse order if
// `flip` is set, which makes a flip free; starts count from source pixel `origin`. Crops differ in
// size, so this runs for every crop. No branch depends on the fraction of a position: it would be
// mispredicted.
void make_filter(const Axis &axis, int64_t origin, int most_bits, bool flip,
                 std::vector<int64_t> &sums, FilterTaps &filter) {
    filter.count = axis.end() - axis.begin();
    filter.taps = static_cast<int>(axis.reach() + 1) / 2 * 2;
    filter.precision = weight_bits(axis, most_bits);
    filter.start.resize(filter.count);
    filter.weights.assign(static_cast<size_t>(filter.count) * filter.taps, 0);
    sums.resize(filter.taps);

    const int64_t support = axis.support(), step = 2 * axis.scaled;
    const double one = static_cast<double>(uint64_t{1} << (filter.precision + 40));
    // axis.first() of each output without another division: a quotient and a remainder are carried
    // on.
    const int64_t whole = 2 * axis.source / step, part = 2 * axis.source % step;
    int64_t middle = axis.middle(axis.begin());
    int64_t quotient = floor_div(middle - support + axis.scaled, step);
    int64_t remainder = middle - support + axis.scaled - quotient * step;
    for (int i = 0; i < filter.count; ++i) {
        const int64_t x = std::max<int64_t>(quotient, 0);
        const int taps = static_cast<int>(std::min<int64_t>(filter.taps, axis.source - x));
        int64_t distance = x * step + axis.scaled - middle;
        int64_t sum = 0;
        for (int t = 0; t < taps; ++t, distance += step) {
            sum += std::max<int64_t>(0, support - std::abs(distance));
            sums[t] = sum;
        }
        // Rounding the running sums instead of the weights keeps the last sum at exactly 1. The
        // quotient of doubles is the same on every machine, and faster than one of 64-bit integers.
        const uint64_t scale = static_cast<uint64_t>(one / static_cast<double>(sum));
        const int place = flip ? filter.count - 1 - i : i;
        int16_t *weights = &filter.weights[static_cast<size_t>(place) * filter.taps];
        int32_t before = 0;
        for (int t = 0; t < taps; ++t) {
            const uint64_t scaled = static_cast<uint64_t>(sums[t]) * scale + (uint64_t{1} << 39);
            const int32_t rounded = static_cast<int32_t>(scaled >> 40);
            weights[t] = static_cast<int16_t>(rounded - before);
            before = rounded;
        }
        filter.start[place] = static_cast<int32_t>(x - origin);

        middle += 2 * axis.source;
        remainder += part;
        const bool carry = remainder >= step;
        remainder -= carry ? step : 0;
        quotient += whole + carry;
    }
}

void copy_row(const uint8_t *from, int count, bool flip, uint8_t *to) {
    if (!flip) {
        std::memcpy(to, from, static_cast<size_t>(count) * kChannels);
        return;
    }
    from += static_cast<ptrdiff_t>(count) * kChannels;
    for (int i = 0; i < count; ++i, to += kChannels) {
        from -= kChannels;
        to[0] = from[0], to[1] = from[1], to[2] = from[2];
    }
}

}  // namespace

Box source_window(const ResizePlan &plan) {
    check(plan);
    const Axis across = horizontal_axis(plan), down = vertical_axis(plan);
    if (across.empty() || down.empty()) return {};
    return {static_cast<int>(across.first(across.begin())),
            static_cast<int>(down.first(down.begin())),
            static_cast<int>(across.last(across.end() - 1)),
            static_cast<int>(down.last(down.end() - 1))};
}

void resize(const ResizePlan &plan, const uint8_t *window, ptrdiff_t stride, uint8_t *out,
            ptrdiff_t out_stride, ResizeScratch &scratch) {
    const Box source = source_window(plan);
    const Axis across = horizontal_axis(plan), down = vertical_axis(plan);
    const bool copies = across.identity() && down.identity();
    const int width = source.width() * kChannels;
    FilterTaps &vertical = scratch.vertical, &horizontal = scratch.horizontal;
    int shift = 0;
    int32_t half = 0;
    if (!copies && !across.empty() && !down.empty()) {
        make_filter(down, source.y0, kMaxVerticalBits, false, scratch.sums, vertical);
        make_filter(across, source.x0, kMaxHorizontalBits, plan.flip, scratch.sums, horizontal);
        if (scratch.kernels->spread_weights) scratch.kernels->spread_weights(horizontal);
        scratch.rows.resize(vertical.taps);
        scratch.row.resize(width + horizontal.taps * kChannels + kRowSlack);
        // Both passes round to nearest. The second one's half is added in the first, too: the
        // horizontal pass carries it through, since its weights sum to 1.
        shift = vertical.precision - kRowBits;
        half = (1 << (shift - 1)) + (1 << (kRowBits - 1 + shift));
    }

    const int left = plan.flip ? static_cast<int>(across.out) - across.end() : across.begin();
    const int inside = across.end() - across.begin();
    const int right = static_cast<int>(across.out) - left - inside;
    for (int y = 0; y < down.out; ++y, out += out_stride) {
        if (y < down.begin() || y >= down.end() || inside == 0) {
            std::memset(out, 0, static_cast<size_t>(across.out) * kChannels);
            continue;
        }
        std::memset(out, 0, static_cast<size_t>(left) * kChannels);
        uint8_t *to = out + static_cast<ptrdiff_t>(left) * kChannels;
        const int i = y - down.begin();
        if (copies) {
            copy_row(window + i * stride, inside, plan.flip, to);
        } else {
            for (int t = 0; t < vertical.taps; ++t) {
                // A tap that pads the filter may point past the window; its weight is zero.
                const int row = std::min(vertical.start[i] + t, source.height() - 1);
                scratch.rows[t] = window + row * stride;
            }
            scratch.kernels->vertical(scratch.rows.data(),
                                      &vertical.weights[static_cast<size_t>(i) * vertical.taps],
                                      vertical.taps, half, shift, width, scratch.row.data());
            scratch.kernels->horizontal(scratch.row.data(), horizontal, to);
        }
        std::memset(to + static_cast<ptrdiff_t>(inside) * kChannels, 0,
                    static_cast<size_t>(right) * kChannels);
    }
}

}  // namespace fastdata
