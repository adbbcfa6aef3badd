// tandem-grammar: compiles grammars for structured outputs, each in a process of its own that it
// forks. tandem-engine-core starts it and is the only one to speak with it (grammar/protocol.h).
// The descriptor after the control socket is the memory of the masks. Exit status: 0 then, 1 when
// it cannot serve, 2 when it was started by hand.

#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "common/forking/forking_program.h"
#include "common/forking/job_reply.h"
#include "common/strings.h"
#include "grammar/compiler/grammar_worker.h"
#include "grammar/compiler/vocabulary.h"

namespace tandem {
namespace {

constexpr int kMasksFile = kControlSocket + 1;

StatusOr<MaskRows> MapMasks(int32_t vocab_size) {
  struct stat about = {};
  if (fstat(kMasksFile, &about) != 0) return ErrnoError(errno, "the masks' file");
  const auto bytes = static_cast<size_t>(about.st_size);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, kMasksFile, 0);
  if (memory == MAP_FAILED) return ErrnoError(errno, "mmap of the masks");
  return MaskRows({static_cast<int32_t*>(memory), bytes / sizeof(int32_t)}, vocab_size);
}

int Run(const std::string& model_folder, int32_t vocab_size, const std::string& tokenizer_folder) {
  if (const Status status = BeginForkingProgram("tandem-grammar", 1); !status.ok()) {
    return FailWith(kControlSocket, status);
  }
  const StatusOr<MaskRows> masks = MapMasks(vocab_size);
  if (!masks.ok()) return FailWith(kControlSocket, masks.status());
  StatusOr<GrammarVocabulary> vocabulary =
      GrammarVocabulary::Load(model_folder, vocab_size, tokenizer_folder);
  if (!vocabulary.ok()) return FailWith(kControlSocket, vocabulary.status());
  const auto run = [&](ForkedJob job) {
    return RunGrammarWorker(&*vocabulary, *masks, std::move(job.socket), std::move(job.input),
                            GrammarLimits());
  };
  return ServeForkedJobs({.own_fds = std::span(&kMasksFile, 1),
                          .prepare = [&] { RehearseGrammar(&*vocabulary); },
                          .warm_up = [&] { return vocabulary->WarmUpFurther(); },
                          .run = run});
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  const std::optional<int32_t> vocab_size =
      argc == 4 ? tandem::ParseNumber<int32_t>(argv[2]) : std::nullopt;
  if (!vocab_size || *vocab_size <= 0) {
    std::fputs(
        "tandem-grammar MODEL VOCAB_SIZE TOKENIZER: started by tandem-engine-core, not by hand\n",
        stderr);
    return 2;
  }
  return tandem::Run(argv[1], *vocab_size, argv[3]);
}
