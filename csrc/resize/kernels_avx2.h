// Kernels of resize/kernels.h for x86 processors with AVX2.
#pragma once

#include "resize/kernels.h"

namespace fastdata {

// Null where the processor has no AVX2.
const ResizeKernels *resize_kernels_avx2();

}  // namespace fastdata
