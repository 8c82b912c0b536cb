// Python's arguments in C++ terms.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "jpeg/segments.h"
#include "pool/batch_jobs.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace fastdata {

// Any buffer of bytes: bytes, memoryview, mmap, a one-dimensional uint8 array. Not copied.
using ByteView = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename T, int columns>
using Table = nb::ndarray<const T, nb::shape<-1, columns>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Column = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Pixels = nb::ndarray<uint8_t, nb::shape<-1, -1, -1, 3>, nb::c_contig, nb::device::cpu>;
using Canvas = nb::ndarray<uint8_t, nb::shape<-1, -1, 3>, nb::c_contig, nb::device::cpu>;
using Image = nb::ndarray<const uint8_t, nb::shape<-1, -1, 3>, nb::c_contig, nb::device::cpu>;
using Names = std::vector<nb::bytes>;  // paths, which need not be UTF-8

inline void require(bool condition, const char *rule) {
    if (!condition) throw nb::value_error(rule);
}

template <typename T>
std::vector<T> copy(const Column<T> &column) {
    return {column.data(), column.data() + column.size()};
}

inline std::string copy(const nb::bytes &name) { return {name.c_str(), name.size()}; }

inline std::vector<std::string> copy(const Names &names) {
    std::vector<std::string> copied;
    copied.reserve(names.size());
    for (const nb::bytes &name : names) copied.push_back(copy(name));
    return copied;
}

// The arrays of Python's CropPlan, which have a row for each image.
struct CropTables {
    Table<int64_t, 2> size;    // width, height of the whole image
    Table<int64_t, 4> source;  // x, y, width, height of the region
    Table<int64_t, 2> scaled;  // width, height
    Table<int64_t, 2> cut;     // x, y
    Column<bool> flip;

    size_t rows() const {
        const size_t rows = size.shape(0);
        require(source.shape(0) == rows && scaled.shape(0) == rows && cut.shape(0) == rows &&
                    flip.size() == rows,
                "the arrays of a crop plan must have one length");
        return rows;
    }

    // The crop of one image, to be written to `out`: `height` rows of `width` pixels.
    CropItem item(size_t row, uint8_t *out, size_t width, size_t height) const {
        const int64_t *region = source.data() + 4 * row;
        CropItem item;
        item.place = row;
        item.image = {size.data()[2 * row], size.data()[2 * row + 1]};
        item.x = region[0];
        item.y = region[1];
        item.plan.source_width = region[2];
        item.plan.source_height = region[3];
        item.plan.scaled_width = scaled.data()[2 * row];
        item.plan.scaled_height = scaled.data()[2 * row + 1];
        item.plan.cut_x = cut.data()[2 * row];
        item.plan.cut_y = cut.data()[2 * row + 1];
        item.plan.out_width = static_cast<int64_t>(width);
        item.plan.out_height = static_cast<int64_t>(height);
        item.plan.flip = flip.data()[row];
        item.out = out;
        return item;
    }
};

}  // namespace fastdata

namespace nanobind::detail {

// Python has the limits of a JPEG as a named tuple.
template <>
struct type_caster<fastdata::JpegLimits> {
    NB_TYPE_CASTER(fastdata::JpegLimits, const_name("fastdata.images.limits.JpegLimits"))

    bool from_python(handle source, uint8_t flags, cleanup_list *cleanup) noexcept {
        using Fields = std::tuple<int64_t, int, int>;
        make_caster<Fields> fields;
        if (!fields.from_python(source, flags, cleanup)) return false;
        std::tie(value.max_pixels, value.max_scans, value.max_segments) =
            fields.operator cast_t<Fields>();
        return true;
    }
};

template <>
struct type_caster<fastdata::CropTables> {
    NB_TYPE_CASTER(fastdata::CropTables, const_name("fastdata.plan.crop.CropPlan"))

    bool from_python(handle source, uint8_t flags, cleanup_list *cleanup) noexcept {
        const auto take = [&](const char *name, auto &array) {
            make_caster<std::decay_t<decltype(array)>> caster;
            const object found = getattr(source, name, handle());
            if (!found.is_valid() || !caster.from_python(found, flags, cleanup)) return false;
            array = std::move(caster.value);
            return true;
        };
        return take("size", value.size) && take("source", value.source) &&
               take("scaled", value.scaled) && take("cut", value.cut) && take("flip", value.flip);
    }
};

}  // namespace nanobind::detail
