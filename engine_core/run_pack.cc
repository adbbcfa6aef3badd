#include "engine_core/run_pack.h"

#include <atomic>
#include <memory>

#include "common/exit_status.h"
#include "common/log.h"
#include "common/strings.h"
#include "engine_core/config.h"
#include "engine_core/models/pack_model.h"
#include "engine_core/models/registry.h"
#include "engine_core/weights/packed_file.h"

namespace tandem {
namespace {

int Fail(ExitStatus exit_status, const Status& status) {
  LOG_ERROR << "[pack] " << status.message();
  return exit_status;
}

StatusOr<int64_t> Verify(const std::string& folder) {
  const std::string path = FindPackedFile(folder);
  if (path.empty()) {
    return NotFoundError(folder + " has no model.tandem, as `tandem pack` makes it");
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<PackedFile> file, PackedFile::Open(path));
  const PackedParts parts = file->parts();
  if (parts.empty()) {
    return FailedPreconditionError(path + " has no hashes of its bytes: pack the model again");
  }
  RETURN_IF_ERROR(parts.Check(std::atomic<bool>(false)));
  return parts.num_bytes();
}

Status CheckFlags(const EngineConfig& config) {
  if (config.device != "auto" && config.device != "cpu") {
    return InvalidArgumentError("--device " + config.device +
                                ": models are packed for the cpu alone");
  }
  if (config.tensor_parallel_size > 1 || config.pipeline_parallel_size > 1) {
    return InvalidArgumentError(
        "--tensor-parallel-size, --pipeline-parallel-size: a model is packed whole, and the ranks "
        "of one pack their parts themselves");
  }
  if (config.load_format != "dummy") return OkStatus();
  return InvalidArgumentError("--load-format dummy: there is nothing to pack");
}

}  // namespace

int RunVerify(const std::string& folder, StartupLog* startup) {
  const StatusOr<int64_t> bytes = Verify(folder);
  if (!bytes.ok()) return Fail(kExitBadModel, bytes.status());
  startup->Done("verified", WithCommas(*bytes >> 20) + " MiB have their hashes");
  return kExitOk;
}

int RunPack(const EngineConfig& given, const PackConfig& pack, StartupLog* startup) {
  if (const Status fits = CheckFlags(given); !fits.ok()) return Fail(kExitBadFlags, fits);
  EngineConfig config = given;
  config.device = "cpu";
  const StatusOr<ModelConfig> model = ReadModelConfig(config.model, config.hf_overrides);
  if (!model.ok()) return Fail(kExitBadModel, model.status());
  const StatusOr<EngineSetup> setup = MakeSetup(config, *model);
  if (!setup.ok()) return Fail(kExitBadFlags, setup.status());
  if (setup->runner.limits.pooling) {
    return Fail(
        kExitBadFlags,
        UnimplementedError(config.model + " makes vectors or scores (" + model->architecture +
                           "): such models are not packed; serve it itself, or pack it "
                           "with --runner generate if it is to write text"));
  }
  StatusOr<std::unique_ptr<Backend>> backend = MakeCpuBackend(setup->backend);
  if (!backend.ok()) return Fail(kExitBadFlags, backend.status());
  const StatusOr<int64_t> bytes = PackModel({.model = config.model,
                                             .out = pack.out,
                                             .load_format = config.load_format,
                                             .quantization = config.quantization,
                                             .formats = setup->formats},
                                            *model, backend->get());
  if (!bytes.ok()) return Fail(kExitBadModel, bytes.status());
  startup->Done("packed", WithCommas(*bytes >> 20) + " MiB; serve it: tandem serve " + pack.out);
  return kExitOk;
}

}  // namespace tandem
