# bash completion for fairlead. Commands and flags are asked of the program, so that they are those of its version.
_fairlead() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
  if [ "$COMP_CWORD" -eq 1 ]; then
    mapfile -t COMPREPLY < <(compgen -W "$(fairlead help 2>/dev/null | sed -n 's/^  \([a-z]\+\) .*/\1/p')" -- "$current")
    return
  fi
  local words=("${COMP_WORDS[1]}")
  case " ${COMP_WORDS[*]} " in
    *" serve "*"--gpu "*) words=(serve --gpu host) ;;
    *" bench allreduce "* | *" bench commands "* | *" bench matrix "* | *" bench trace "* | *" bench training "*)
      words=(bench "${COMP_WORDS[2]}")
      ;;
    *" gain "*"--training "*) words=(gain --training resnet50) ;;
  esac
  case $current in
    -*)
      local flags
      flags=$(fairlead "${words[@]}" --help 2>/dev/null | grep -oE '^ +(-h,)?--[a-z][a-z-]*(,--[a-z][a-z-]*)*' | tr ', ' '\n\n')
      mapfile -t COMPREPLY < <(compgen -W "$flags" -- "$current")
      return
      ;;
  esac
  case $previous in
    --transport) mapfile -t COMPREPLY < <(compgen -W "auto verbs tcp shm" -- "$current") && return ;;
    --log-format) mapfile -t COMPREPLY < <(compgen -W "text json" -- "$current") && return ;;
    --log-level) mapfile -t COMPREPLY < <(compgen -W "debug info warning error off" -- "$current") && return ;;
    --store | --metrics-discovery | --shm-directory) compopt -o dirnames && return ;;
  esac
  if [ "${COMP_WORDS[1]}" = bench ] && [ "$COMP_CWORD" -eq 2 ]; then
    mapfile -t COMPREPLY < <(compgen -W "bw lat allreduce commands matrix trace training" -- "$current")
    return
  fi
  compopt -o default
}
complete -F _fairlead fairlead
