// The subcommands: each takes the words after its name and gives the exit code (kSuccess, kFailure, kUsage).
#pragma once

#include <span>

namespace fairlead::cli {

using Words = std::span<const char* const>;

int bench_command(Words words);
int bench_allreduce_command(Words words);  // of `bench allreduce`
int bench_matrix_command(Words words);     // of `bench matrix`
int bench_training_command(Words words);   // of `bench training`
int bench_commands_command(Words words);   // of `bench commands`
int bench_trace_command(Words words);      // of `bench trace`
int devices_command(Words words);
int doctor_command(Words words);
int explain_command(Words words);
int gain_command(Words words);
int gain_training_command(Words words);  // of `gain --training`
int key_command(Words words);
int pull_command(Words words);
int push_command(Words words);
int run_command(Words words);
int serve_command(Words words);
int serve_gpu_command(Words words);  // of `serve --gpu`
int status_command(Words words);
int topo_command(Words words);
int version_command(Words words);

}  // namespace fairlead::cli
