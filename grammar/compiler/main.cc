// tandem-grammar: compiles grammars for structured outputs, each in a process of its own that it
// forks. tandem-engine-core starts it and is the only one to speak with it (grammar/protocol.h),
// over descriptor 3; descriptor 4 is the memory of the masks. It ends when the engine closes the
// socket. Exit status: 0 then, 1 when it cannot serve, 2 when it was started by hand.

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <optional>
#include <string>

#include "common/log.h"
#include "common/log_format.h"
#include "common/packets.h"
#include "common/strings.h"
#include "grammar/compiler/grammar_worker.h"
#include "grammar/compiler/vocabulary.h"
#include "grammar/protocol.h"

namespace tandem {
namespace {

constexpr int kControlSocket = 3;
constexpr int kMasksFile = 4;

int Fail(const Status& status) {
  std::string reply(1, static_cast<char>(ReplyKind::kError));
  reply += status.message();
  (void)SendPacket(kControlSocket, std::string_view(reply).substr(0, kMaxPacketBytes)).ok();
  return 1;
}

StatusOr<MaskRows> MapMasks(int32_t vocab_size) {
  struct stat about = {};
  if (fstat(kMasksFile, &about) != 0) return ErrnoError(errno, "the masks' file");
  const auto bytes = static_cast<size_t>(about.st_size);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, kMasksFile, 0);
  if (memory == MAP_FAILED) return ErrnoError(errno, "mmap of the masks");
  return MaskRows({static_cast<int32_t*>(memory), bytes / sizeof(int32_t)}, vocab_size);
}

// If the host runs out of memory, this process is the one to end.
void OfferToEndFirst() {
  const UniqueFd file(open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC));
  if (file && write(file.get(), "500", 3) < 0) return;  // it is a favour, not a need
}

// In the forked process. What xgrammar prints is not for the engine's log: it quotes the spec.
int RunForked(GrammarVocabulary* vocabulary, const MaskRows& masks, Packet packet) {
  close(kControlSocket);
  close(kMasksFile);
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  OfferToEndFirst();
  const UniqueFd nowhere(open("/dev/null", O_RDWR | O_CLOEXEC));
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(nowhere.get(), fd);
  return RunGrammarWorker(vocabulary, masks, std::move(packet.fds[0]), std::move(packet.fds[1]),
                          GrammarLimits());
}

int ServeGrammars(GrammarVocabulary* vocabulary, const MaskRows& masks) {
  const char ready = static_cast<char>(ReplyKind::kDone);
  if (!SendPacket(kControlSocket, {&ready, 1}).ok()) return 0;
  bool is_used = false;  // by a model that nobody holds to grammars nothing more is made ready
  for (;;) {
    const bool waits = !is_used || !vocabulary->WarmUpFurther();
    StatusOr<Packet> packet = ReceivePacket(kControlSocket, waits ? -1 : 0);
    if (packet.status().code() == StatusCode::kDeadlineExceeded) continue;
    if (!packet.ok()) return 0;
    if (packet->fds.size() != 2) continue;
    is_used = true;
    const pid_t child = fork();
    if (child == 0) _exit(RunForked(vocabulary, masks, *std::move(packet)));
    if (child < 0) LOG_ERROR << ErrnoError(errno, "fork").message();  // its socket closes
  }
}

int Run(const std::string& model_folder, int32_t vocab_size) {
  // They reach the engine as well, which closes the socket when it has finished its requests.
  for (const int signal_number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) signal(signal_number, SIG_IGN);
  signal(SIGCHLD, SIG_IGN);  // nobody waits for the forked processes
  if (const Status status = InitLog("tandem-grammar"); !status.ok()) return Fail(status);
  InheritLogFormat();
  const StatusOr<MaskRows> masks = MapMasks(vocab_size);
  if (!masks.ok()) return Fail(masks.status());
  StatusOr<GrammarVocabulary> vocabulary = GrammarVocabulary::Load(model_folder, vocab_size);
  if (!vocabulary.ok()) return Fail(vocabulary.status());
  return ServeGrammars(&*vocabulary, *masks);
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  const std::optional<int32_t> vocab_size =
      argc == 3 ? tandem::ParseNumber<int32_t>(argv[2]) : std::nullopt;
  if (!vocab_size || *vocab_size <= 0) {
    std::fputs("tandem-grammar MODEL VOCAB_SIZE: started by tandem-engine-core, not by hand\n",
               stderr);
    return 2;
  }
  return tandem::Run(argv[1], *vocab_size);
}
