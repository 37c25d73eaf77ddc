# shellcheck shell=bash
# bash completion of qosfsctl(1): commands and options as its own help has them; rules, jobs, settings and ids as the
# mount or the server has them now. One that hangs completes nothing, after a second.

# The lines of standard input that begin with $1.
_qosfsctl_offer()
{
    local line
    while IFS= read -r line; do
        [[ $line != "$1"* ]] || COMPREPLY+=("$(printf %q "$line")")
    done
}

# The names that the command "$1" takes; "$2" and what follows is how qosfsctl is called.
_qosfsctl_names()
{
    local command=$1
    shift
    case $command in
    why | clear) "$@" jobs --json | sed -n 's/^    "id" : "\(.*\)",$/\1/p' ;;
    'rule change' | 'rule stop') "$@" rule list | awk 'NR > 1 { print $1 }' ;;
    policy) "$@" policy | awk 'NR > 1 { print $1 }' ;;
    get | set) "$@" get | sed 's/=.*//' ;;
    'server get' | 'server set') "$@" server get | sed 's/=.*//' ;;
    'cluster rule change' | 'cluster rule stop') "$@" cluster rule list --json | sed -n 's/^      "name" : "\(.*\)",$/\1/p' ;;
    'cluster why') "$@" cluster jobs --json | sed -n 's/^      "class" : "\(..*\)",$/\1/p' | sort -u ;;
    'cluster job clear' | 'cluster job set') "$@" cluster job list --json | sed -n 's/^      "id" : "\(.*\)",$/\1/p' ;;
    'cluster forget') "$@" cluster status --json | sed -n 's/^      "name" : "\(.*\)",$/\1/p' ;;
    'server evict') "$@" server mounts --json | sed -n 's/^    "id" : "\(.*\)",$/\1/p' ;;
    esac
}

# What may follow the first argument of the command "$2": a rule's options. What follows = is the user's to know.
_qosfsctl_more()
{
    local word=$1 command=$2
    shift 2
    case $command,${COMP_WORDS[COMP_CWORD]}${COMP_WORDS[COMP_CWORD - 1]} in
    *=*) ;;
    'rule start',* | 'rule change',* | 'cluster rule start',* | 'cluster rule change',* | 'cluster job set',*)
        compopt -o nospace 2>/dev/null
        # shellcheck disable=SC2086 # the words of a command
        _qosfsctl_offer "$word" < <("$@" help $command 2>/dev/null | sed -nE 's/^  ([a-z]+=).*/\1/p')
        ;;
    esac
}

_qosfsctl()
{
    local word=${COMP_WORDS[COMP_CWORD]} command='' known next option='' arguments=0 i
    local -a call=(timeout 1 "${COMP_WORDS[0]}")
    COMPREPLY=()
    known=$("${call[@]}" help 2>/dev/null | sed -nE '/^Commands:/,$ s/^  (([a-z]+ )*[a-z]+)( [[A-Z].*|  .*)$/\1/p')
    for ((i = 1; i < COMP_CWORD; i++)); do
        case $option,${COMP_WORDS[i]} in
        ?*,=) ;;
        ?*,*)
            case $option in -m | --mount) call+=(-m "${COMP_WORDS[i]}") ;; esac
            option=''
            ;;
        ,-m | ,--mount | ,-s | ,--socket | ,-o | ,--output | ,-J | ,--job | ,-n | ,--limit | ,--since) option=${COMP_WORDS[i]} ;;
        ,-* | ,help) ;;
        *)
            next="${command:+$command }${COMP_WORDS[i]}"
            if ! grep -qE "^$next( |$)" <<<"$known"; then
                arguments=$((COMP_CWORD - i))
                break
            fi
            command=$next
            ;;
        esac
    done
    [ "$word" != = ] || word=''
    case $option in
    -J | --job) _qosfsctl_offer "$word" < <(_qosfsctl_names why "${call[@]}" 2>/dev/null) ;;
    ?*)
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
        ;;
    '')
        if [[ $word == -* ]]; then
            # shellcheck disable=SC2086 # the words of a command
            _qosfsctl_offer "$word" < <("${call[@]}" help $command 2>/dev/null | grep -oE -- '(^| )--?[A-Za-z]+' | tr -d ' ')
        elif [ "$arguments" -gt 0 ]; then
            _qosfsctl_more "$word" "$command" "${call[@]}"
        elif grep -qxF "$command" <<<"$known"; then
            _qosfsctl_offer "$word" < <(_qosfsctl_names "$command" "${call[@]}" 2>/dev/null)
        else
            _qosfsctl_offer "$word" < <(sed -nE "s/^${command:+$command }([a-z]+).*/\1/p" <<<"$known" | sort -u)
        fi
        ;;
    esac
}

complete -F _qosfsctl qosfsctl
