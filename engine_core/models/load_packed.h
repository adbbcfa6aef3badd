#pragma once

// What loaders of models make of a checkpoint's tensors, under names: it is computed, or where the
// weights are packed already (engine_core/weights/packed_file.h) it is mapped, and `tandem pack`
// writes it. A name is unique in a model; what has it is the same numbers each time.
// Thread: a loader's. Failure: that of what is called; weights that are packed and have no such
// matrix, or in another shape or format.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "engine_core/models/load_context.h"
#include "engine_core/weights/packed_file.h"

namespace tandem {

StatusOr<std::unique_ptr<PackedMatrix>> LoadPacked(
    const LoadContext& context, const PackedFile::Wanted& wanted,
    const std::function<StatusOr<std::unique_ptr<PackedMatrix>>()>& pack);

// [rows, columns] on the device, or with rows = 0 [columns]. read: writes all of its numbers.
StatusOr<OwnedTensor> LoadNumbers(const LoadContext& context, const std::string& name, int64_t rows,
                                  int64_t columns, const std::function<Status(float*)>& read);

}  // namespace tandem
