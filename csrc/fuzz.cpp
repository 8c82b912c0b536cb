// Mutates JPEGs and gives them to everything that reads JPEGs: fuzz COUNT SEED FILE...
//
// It is built with -fsanitize=address,undefined, which end it at the first fault. It also ends, with
// status 1 and the mutant in fuzz-failure.jpg, if two ways of decoding or of resizing differ, if
// transcoding changes a pixel or writes something that libjpeg warns about, if a mutant takes more
// than a second of CPU time, or if a good image decodes differently after a bad one. The last line
// says what happened to the mutants: a run in which all of them are refused proves nothing.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "jpeg/codec.h"
#include "jpeg/decode.h"
#include "jpeg/header.h"
#include "jpeg/transcode.h"
#include "resize/resize.h"

#include <jerror.h>

namespace {

using namespace fastdata;
using Bytes = std::vector<uint8_t>;

constexpr JpegLimits kLimits{1 << 20, 20, 256};
constexpr double kMaxSeconds = 1.0;
constexpr int kCheckGoodEvery = 50;

class Random {
  public:
    explicit Random(uint64_t seed) : engine_(seed) {}
    size_t below(size_t n) { return n ? engine_() % n : 0; }

  private:
    std::mt19937_64 engine_;
};

struct Mix {
    long refused_header = 0, warned = 0, refused = 0, decoded = 0;
    long only_ours = 0, only_libjpeg = 0;
    long resized = 0;
    long transcoded = 0, kept = 0, transcode_failed = 0, salvaged = 0;
    double slowest = 0;
};

void flip_bits(Bytes &b, Random &random) {
    for (size_t n = 1 + random.below(6); n > 0 && !b.empty(); --n) {
        b[random.below(b.size())] ^= static_cast<uint8_t>(1u << random.below(8));
    }
}

void cut(Bytes &b, Random &random) {
    b.resize(random.below(b.size() + 1));
    if (random.below(2)) b.insert(b.end(), {0xFF, 0xD9});
}

void splice(Bytes &b, const Bytes &other, Random &random) {
    const size_t at = random.below(b.size() + 1), from = random.below(other.size() + 1);
    const size_t count = std::min(random.below(400), other.size() - from);
    const size_t replaced = random.below(2) ? std::min(count, b.size() - at) : 0;
    b.erase(b.begin() + at, b.begin() + at + replaced);
    b.insert(b.begin() + at, other.begin() + from, other.begin() + from + count);
}

// Changes a marker or a byte soon after one, where lengths, sizes, tables and scans are.
void edit_marker(Bytes &b, Random &random) {
    std::vector<size_t> markers;
    for (size_t i = 0; i + 1 < b.size(); ++i) {
        if (b[i] == 0xFF && b[i + 1] != 0) markers.push_back(i);
    }
    if (markers.empty()) return;
    const size_t at = markers[random.below(markers.size())];
    const size_t place = random.below(3) ? at + 1 + random.below(24) : at + 1;
    static constexpr uint8_t values[] = {0x00, 0x01, 0x02, 0x7F, 0x80, 0xFF, 0xC0, 0xC2, 0xC4,
                                         0xD0, 0xD7, 0xD9, 0xDA, 0xDB, 0xDD, 0xE0, 0xEE};
    if (place < b.size()) {
        b[place] = random.below(2) ? values[random.below(sizeof values)]
                                   : static_cast<uint8_t>(random.below(256));
    }
}

// Renumbers or drops a restart marker, or inserts one.
void edit_restart(Bytes &b, Random &random) {
    const auto marker = static_cast<uint8_t>(0xD0 + random.below(8));
    const size_t at = random.below(b.size() + 1);
    for (size_t i = at; i + 1 < b.size(); ++i) {
        if (b[i] != 0xFF || (b[i + 1] & 0xF8) != 0xD0) continue;
        if (random.below(2)) b[i + 1] = marker;
        else b.erase(b.begin() + i, b.begin() + i + 2);
        return;
    }
    b.insert(b.begin() + at, {0xFF, marker});
}

Bytes mutate(const std::vector<Bytes> &seeds, Random &random) {
    Bytes b = seeds[random.below(seeds.size())];
    for (size_t n = 1 + random.below(3); n > 0; --n) {
        switch (random.below(12)) {
            case 0: cut(b, random); break;
            case 1: splice(b, seeds[random.below(seeds.size())], random); break;
            case 2: case 3: edit_marker(b, random); break;
            case 4: edit_restart(b, random); break;
            default: flip_bits(b, random);
        }
    }
    b.shrink_to_fit();  // so that reading past its end is reading past the allocation
    return b;
}

Box random_box(int width, int height, Random &random) {
    const int x0 = static_cast<int>(random.below(width));
    const int y0 = static_cast<int>(random.below(height));
    return {x0, y0, x0 + 1 + static_cast<int>(random.below(width - x0)),
            y0 + 1 + static_cast<int>(random.below(height - y0))};
}

Bytes copy(const RgbView &view) {
    Bytes all;
    for (int y = 0; y < view.height; ++y) {
        const uint8_t *row = view.pixels + y * view.stride;
        all.insert(all.end(), row, row + 3 * view.width);
    }
    return all;
}

[[noreturn]] void report(const Bytes &mutant, const char *what) {
    std::ofstream("fuzz-failure.jpg", std::ios::binary)
        .write(reinterpret_cast<const char *>(mutant.data()),
               static_cast<std::streamsize>(mutant.size()));
    std::fprintf(stderr, "FAILED: %s (the mutant is in fuzz-failure.jpg)\n", what);
    std::exit(1);
}

// Returns the pixels, or nothing if decoding failed.
Bytes decode(JpegDecoder &decoder, const Bytes &b, const Box &box, JpegWay way, Mix &mix) {
    try {
        return copy(decoder.decode_region(b.data(), b.size(), box, way));
    } catch (const JpegError &error) {
        ++(error.code() >= JWRN_ADOBE_XFORM ? mix.warned : mix.refused);
    } catch (const DecodeError &) {
        ++mix.refused;
    }
    return {};
}

// Our inverse transform is libjpeg-turbo's on x86. If a value between its two passes needs more
// than 16 bits, as after damage, the code for x86 saturates and the code for ARM wraps.
#if defined(__x86_64__)
constexpr bool kSameIdct = true;
#else
constexpr bool kSameIdct = false;
#endif

// Returns the pixels, if our decoder gives any.
Bytes decode_all_ways(JpegDecoder &decoder, const Bytes &b, const Box &box, Mix &mix,
                      bool undamaged = false) {
    const Bytes fast = decode(decoder, b, box, JpegWay::kFastest, mix);
    const Bytes small = decode(decoder, b, box, JpegWay::kSmallJpeg, mix);
    const Bytes portable = decode(decoder, b, box, JpegWay::kPortable, mix);
    const Bytes plain = decode(decoder, b, box, JpegWay::kPlain, mix);
    mix.decoded += !fast.empty() + !portable.empty() + !small.empty() + !plain.empty();
    mix.only_ours += !fast.empty() && plain.empty();
    mix.only_libjpeg += fast.empty() && !plain.empty();
    if (fast != portable) report(b, "fast and portable differ");
    if (!small.empty() && !plain.empty() && small != plain) report(b, "small and plain differ");
    if (!kSameIdct && !undamaged) return fast;
    if (!fast.empty() && !small.empty() && fast != small) report(b, "fast and small differ");
    if (!fast.empty() && !plain.empty() && fast != plain) report(b, "fast and plain differ");
    return fast;
}

Bytes resize_by(const ResizeKernels &kernels, const ResizePlan &plan, const Bytes &window,
                int width) {
    ResizeScratch scratch;
    scratch.kernels = &kernels;
    Bytes out(static_cast<size_t>(plan.out_width * plan.out_height * 3));
    resize(plan, window.data(), ptrdiff_t{3} * width, out.data(), plan.out_width * 3, scratch);
    return out;
}

// All kernels must give the same pixels, and touch none outside the window or the output.
void resize_all_ways(const Bytes &b, const Bytes &pixels, const Box &box, Random &random,
                     Mix &mix) {
    ResizePlan plan;
    plan.source_width = box.width();
    plan.source_height = box.height();
    plan.scaled_width = static_cast<int64_t>(1 + random.below(100));
    plan.scaled_height = static_cast<int64_t>(1 + random.below(100));
    plan.cut_x = static_cast<int64_t>(random.below(60)) - 20;
    plan.cut_y = static_cast<int64_t>(random.below(60)) - 20;
    plan.out_width = static_cast<int64_t>(1 + random.below(80));
    plan.out_height = static_cast<int64_t>(1 + random.below(20));
    plan.flip = random.below(2) != 0;
    const Box part = source_window(plan);
    Bytes window;
    for (int y = part.y0; y < part.y1; ++y) {
        const auto row = pixels.begin() + (ptrdiff_t{y} * box.width() + part.x0) * 3;
        window.insert(window.end(), row, row + part.width() * 3);
    }
    window.shrink_to_fit();
    ++mix.resized;
    if (resize_by(best_resize_kernels(), plan, window, part.width()) !=
        resize_by(portable_resize_kernels(), plan, window, part.width())) {
        report(b, "resizing differs between kernels");
    }
}

// Whether libjpeg decodes all of it without a warning.
bool is_clean(const Bytes &b) {
    JpegSource source;
    JpegDecompressor jpeg;
    Bytes row;
    try {
        jpeg.call([&](jpeg_decompress_struct *info) {
            source.install(info, b.data(), b.size());
            jpeg_read_header(info, TRUE);
            jpeg_start_decompress(info);
        });
        row.resize(size_t{jpeg->output_width} * static_cast<size_t>(jpeg->output_components));
        uint8_t *to = row.data();
        jpeg.call([&](jpeg_decompress_struct *info) {
            while (info->output_scanline < info->output_height) jpeg_read_scanlines(info, &to, 1);
            jpeg_finish_decompress(info);
        });
    } catch (const JpegError &) {
        return false;
    }
    return jpeg.warnings() == 0;
}

// Re-encodes what libjpeg makes of a damaged image, which must give a file without damage.
void salvage(const Bytes &b, Mix &mix) {
    try {
        const TranscodeResult result =
            transcode(b.data(), b.size(), 16, kLimits, Tolerated::kDamage);
        if (result.outcome != Transcoded::kDone) return;
        ++mix.salvaged;
        if (!is_clean(result.bytes)) report(b, "what was salvaged is damaged");
    } catch (const DecodeError &) {
    }
}

void run_one(JpegDecoder &decoder, const Bytes &b, Random &random, Mix &mix) {
    JpegHeader header;
    try {
        header = read_jpeg_header(b.data(), b.size(), kLimits);
    } catch (const DecodeError &) {
        ++mix.refused_header;
        // The decoder must not rely on the probe, so it gets such bytes as well.
        const int width = 1 + static_cast<int>(random.below(40));
        const int height = 1 + static_cast<int>(random.below(40));
        decode(decoder, b, {0, 0, width, height}, JpegWay::kFastest, mix);
        return;
    }
    const Box box = random_box(header.width, header.height, random);
    const Bytes pixels = decode_all_ways(decoder, b, box, mix);
    if (!pixels.empty()) resize_all_ways(b, pixels, box, random, mix);
    try {
        const int run_pixels = 8 << random.below(4);
        const TranscodeResult result = transcode(b.data(), b.size(), run_pixels, kLimits);
        ++(result.outcome == Transcoded::kDone ? mix.transcoded : mix.kept);
        if (result.outcome != Transcoded::kDone) return;
        if (!is_clean(result.bytes)) report(b, "what was transcoded gives a warning");
        const Box whole{0, 0, header.width, header.height};
        const Bytes before = decode(decoder, b, whole, JpegWay::kPlain, mix);
        const Bytes after = decode(decoder, result.bytes, whole, JpegWay::kFastest, mix);
        if (kSameIdct && before != after && !before.empty()) {
            report(b, "transcoding changed the pixels");
        }
        const Box part = random_box(header.width, header.height, random);
        decode_all_ways(decoder, result.bytes, part, mix);
    } catch (const DecodeError &) {
        ++mix.transcode_failed;
        salvage(b, mix);
    }
}

Bytes whole(JpegDecoder &decoder, const Bytes &b) {
    const JpegHeader h = read_jpeg_header(b.data(), b.size(), kLimits);
    return copy(decoder.decode_region(b.data(), b.size(), {0, 0, h.width, h.height}));
}

Bytes load(const char *path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

int main(int argc, char **argv) {
    if (argc < 4) {
        std::fprintf(stderr, "usage: fuzz COUNT SEED FILE...\n");
        return 2;
    }
    const long count = std::strtol(argv[1], nullptr, 10);
    Random random(std::strtoull(argv[2], nullptr, 10));
    std::vector<Bytes> seeds, pixels;
    JpegDecoder decoder(kLimits);
    for (int i = 3; i < argc; ++i) {
        seeds.push_back(load(argv[i]));
        pixels.push_back(whole(decoder, seeds.back()));
    }
    Mix mix;
    for (const Bytes &seed : seeds) {
        const JpegHeader h = read_jpeg_header(seed.data(), seed.size(), kLimits);
        for (int i = 0; i < 20; ++i) {
            decode_all_ways(decoder, seed, random_box(h.width, h.height, random), mix, true);
        }
    }
    mix = {};
    for (long i = 0; i < count; ++i) {
        const Bytes b = mutate(seeds, random);
        const std::clock_t start = std::clock();
        run_one(decoder, b, random, mix);
        const auto ticks = static_cast<double>(std::clock() - start);
        const double seconds = ticks / CLOCKS_PER_SEC;
        mix.slowest = std::max(mix.slowest, seconds);
        if (seconds > kMaxSeconds) report(b, "took over a second");
        if (i % kCheckGoodEvery == 0) {
            const size_t k = random.below(seeds.size());
            if (whole(decoder, seeds[k]) != pixels[k]) report(b, "a good image changed after it");
        }
    }
    std::printf("mutants %ld, refused by the probe %ld; decodings: %ld decoded, %ld refused, "
                "%ld warned; decoded by us alone %ld, by libjpeg-turbo alone %ld; resizings %ld; "
                "transcodings: %ld done, %ld kept, %ld failed, %ld of these salvaged; "
                "slowest %.0f ms\n",
                count, mix.refused_header, mix.decoded, mix.refused, mix.warned, mix.only_ours,
                mix.only_libjpeg, mix.resized, mix.transcoded, mix.kept, mix.transcode_failed,
                mix.salvaged, 1e3 * mix.slowest);
    return 0;
}
